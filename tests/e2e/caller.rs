//! A caller that speaks gRPC, in a test that waits for files and processes in between.

use std::{fmt::Debug, future::Future};

use tokio::runtime::Runtime;
use tonic::{Status, transport::Channel};
use weft_client::{Client, Error};
use weft_proto::{
    status::{self, Refused},
    v1::{self, session_service_client::SessionServiceClient},
};
use weft_testkit::Fabric;

use crate::{operator::SECONDS, runtime};

/// See the module.
pub(crate) struct Caller {
    runtime: Runtime,
    /// What our own clients do.
    pub(crate) client: Client,
    /// What others may do.
    pub(crate) channel: Channel,
}

impl Caller {
    pub(crate) fn of(fabric: &Fabric) -> Self {
        let runtime = runtime();
        let connected = async {
            let client = fabric.client();
            let channel = client.address().channel();
            (client, channel)
        };
        let (client, channel) = runtime.block_on(connected);
        Self { runtime, client, channel }
    }

    /// Waits for an answer.
    #[track_caller]
    pub(crate) fn wait<T>(&self, answer: impl Future<Output = T>) -> T {
        let in_time = self.runtime.block_on(async { tokio::time::timeout(SECONDS, answer).await });
        in_time.expect("an answer in time")
    }

    /// Opens a session of an agent: its id and its snapshot.
    #[track_caller]
    pub(crate) fn open_session(&self, agent: &str) -> (String, v1::Snapshot) {
        let opened = self.wait(self.client.open_session(agent)).unwrap();
        (opened.session.unwrap().id, opened.snapshot.unwrap())
    }

    /// A session as it is.
    #[track_caller]
    pub(crate) fn session(&self, id: &str) -> v1::GetSessionResponse {
        self.wait(self.client.get_session(id, false)).unwrap()
    }

    /// A session after the boundary of a turn.
    #[track_caller]
    pub(crate) fn begin_turn(&self, id: &str) -> v1::GetSessionResponse {
        self.wait(self.client.get_session(id, true)).unwrap()
    }

    /// The service of sessions, for requests that our own clients do not make.
    pub(crate) fn sessions(&self) -> SessionServiceClient<Channel> {
        SessionServiceClient::new(self.channel.clone())
    }
}

/// What a refusal says.
pub(crate) trait Told {
    fn told(self) -> Refused;
}

impl<T: Debug> Told for Result<T, Error> {
    #[track_caller]
    fn told(self) -> Refused {
        match self {
            Err(Error::Refused(refused)) => *refused,
            other => panic!("instead of a refusal: {other:?}"),
        }
    }
}

impl<T: Debug> Told for Result<T, Status> {
    #[track_caller]
    fn told(self) -> Refused {
        status::read(&self.unwrap_err())
    }
}
