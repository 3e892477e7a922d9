//! `weft.link.v1.LinkService`.

use std::{pin::Pin, sync::Arc};

use futures::{Stream, StreamExt as _};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};
use weft_daemon::TaskGroup;
use weft_proto::link::{self, link_service_server::LinkService};

use super::refused;
use crate::links::Links;

pub(crate) struct Link {
    pub(crate) links: Arc<Links>,
    pub(crate) tasks: TaskGroup,
}

#[tonic::async_trait]
impl LinkService for Link {
    type ConnectStream = Pin<Box<dyn Stream<Item = Result<link::ConnectResponse, Status>> + Send>>;

    async fn connect(
        &self,
        request: Request<Streaming<link::ConnectRequest>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (session, opened) = self.links.open(request.into_inner()).await.map_err(refused)?;
        self.tasks.spawn(session.serve());
        Ok(Response::new(Box::pin(ReceiverStream::new(opened.inbox).map(|message| Ok(*message)))))
    }
}
