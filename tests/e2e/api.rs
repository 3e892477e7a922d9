//! What any gRPC client finds at a coordinator: health, reflection, and statuses with stable reasons.

use std::time::Duration;

use tonic::{
    Code,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, server_reflection_client::ServerReflectionClient,
    server_reflection_request::MessageRequest, server_reflection_response::MessageResponse,
};
use weft_proto::{status, v1};
use weft_testkit::{Fabric, Skill, Spec};

use crate::{fabric, runtime};

async fn channel(fabric: &Fabric) -> Channel {
    Endpoint::from_shared(format!("http://{}", fabric.address())).unwrap().connect().await.unwrap()
}

#[test]
fn health_and_reflection_answer() {
    let fabric = fabric();
    runtime().block_on(async {
        let channel = channel(&fabric).await;
        for service in ["", "weft.v1.InvocationService"] {
            let request = HealthCheckRequest { service: service.into() };
            let health = HealthClient::new(channel.clone()).check(request).await.unwrap().into_inner();
            assert_eq!(health.status(), tonic_health::ServingStatus::Serving.into());
        }
        let ask = ServerReflectionRequest {
            host: String::new(),
            message_request: Some(MessageRequest::ListServices(String::new())),
        };
        let mut answers = ServerReflectionClient::new(channel)
            .server_reflection_info(tokio_stream::iter([ask]))
            .await
            .unwrap()
            .into_inner();
        let Some(MessageResponse::ListServicesResponse(list)) =
            answers.message().await.unwrap().unwrap().message_response
        else {
            panic!("no list of services");
        };
        let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        for service in ["weft.v1.CatalogService", "weft.v1.InvocationService", "weft.link.v1.LinkService"] {
            assert!(names.iter().any(|name| name == service), "{names:?}");
        }
    });
}

#[test]
fn refusals_carry_a_reason_and_the_detail_that_fits_it() {
    let fabric = fabric();
    let needy = Skill::echo("needy")
        .with("metadata", serde_json::json!({"requires": {"bins": ["weft_no_such_tool"]}}));
    let risky = Skill::echo("risky").with("class", serde_json::json!("mutating"));
    let _node = fabric.node("host", &[Skill::echo("echo"), needy, risky], &Spec::new());
    runtime().block_on(async {
        let channel = channel(&fabric).await;
        let mut service = v1::invocation_service_client::InvocationServiceClient::new(channel);
        let mut refused = async |skill: &str, args: &str| {
            let invocation = v1::InvocationRequest {
                skill: skill.into(),
                args: args.as_bytes().to_vec().into(),
                ..Default::default()
            };
            let request = v1::InvokeRequest { invocation: Some(invocation) };
            status::read(&service.invoke(request).await.unwrap_err())
        };
        let missing = refused("missing", "{}").await;
        assert_eq!((missing.code, missing.reason.as_str()), (Code::NotFound, "SKILL_NOT_FOUND"));
        let args = refused("echo", "[]").await;
        assert_eq!((args.code, args.reason.as_str()), (Code::InvalidArgument, "ARGS_INVALID"));
        assert_eq!(args.fields.len(), 1);
        let ineligible = refused("needy", "{}").await;
        assert_eq!(
            (ineligible.code, ineligible.reason.as_str()),
            (Code::FailedPrecondition, "NO_ELIGIBLE_NODE")
        );
        assert_eq!(ineligible.preconditions[0].0, "requires.bins");
        let denied = refused("risky", "{}").await;
        assert_eq!((denied.code, denied.reason.as_str()), (Code::PermissionDenied, "POLICY_DENIED"));
        assert_eq!(denied.metadata["class"], "mutating");
        assert_eq!(refused("", "{}").await.reason, "REQUEST_INVALID");
    });
}

#[test]
fn a_mutating_call_without_a_request_id_is_refused() {
    let fabric = Fabric::start(crate::WEFT, &["--allow", "mutating"]);
    let risky = Skill::echo("risky").with("class", serde_json::json!("mutating"));
    let _node = fabric.node("host", &[risky], &Spec::new());
    runtime().block_on(async {
        let mut service = v1::invocation_service_client::InvocationServiceClient::new(channel(&fabric).await);
        let mut invocation = v1::InvocationRequest { skill: "risky".into(), ..Default::default() };
        let request = v1::CreateInvocationRequest { invocation: Some(invocation.clone()) };
        let refused = status::read(&service.create_invocation(request).await.unwrap_err());
        assert_eq!(refused.reason, "REQUEST_INVALID");
        assert_eq!(refused.fields[0].0, "request_id");

        invocation.request_id = "r-1".into();
        let request = v1::CreateInvocationRequest { invocation: Some(invocation) };
        let created = service.create_invocation(request).await.unwrap().into_inner().invocation.unwrap();
        // Watching from beyond the log is told as such.
        let request = v1::WatchInvocationRequest { invocation_id: created.id, after_sequence: 999 };
        let expired = status::read(&service.watch_invocation(request).await.unwrap_err());
        assert_eq!((expired.code, expired.reason.as_str()), (Code::OutOfRange, "WATCH_EXPIRED"));
    });
}

#[test]
fn the_stream_of_an_invocation_is_gap_free_and_ends_with_its_end() {
    let fabric = fabric();
    let script = "for n in 1 2 3; do echo $n >&2; sleep 0.05; done; echo '{}'";
    let _node = fabric.node("host", &[Skill::sh("steps", script)], &Spec::new());
    runtime().block_on(async {
        let mut service = v1::invocation_service_client::InvocationServiceClient::new(channel(&fabric).await);
        let invocation = v1::InvocationRequest { skill: "steps".into(), ..Default::default() };
        let mut stream =
            service.invoke(v1::InvokeRequest { invocation: Some(invocation) }).await.unwrap().into_inner();
        let mut seen = Vec::new();
        let all = async {
            while let Some(message) = stream.message().await.unwrap() {
                assert!(!message.invocation_id.is_empty());
                if let Some(v1::invoke_response::Message::Event(event)) = message.message {
                    seen.push(event);
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(30), all).await.unwrap();
        let sequences: Vec<_> = seen.iter().map(|event| event.sequence).collect();
        assert_eq!(sequences, (1..=seen.len() as u64).collect::<Vec<_>>());
        use v1::invocation_event::Event;
        assert!(matches!(seen[0].event, Some(Event::Admitted(_))));
        assert!(matches!(seen[1].event, Some(Event::Dispatched(_))));
        assert!(matches!(seen[2].event, Some(Event::Started(_))));
        assert!(matches!(seen.last().unwrap().event, Some(Event::Finished(_))));
        let stderr: Vec<u8> = seen
            .iter()
            .filter_map(|event| match &event.event {
                Some(Event::Stderr(stderr)) => Some(stderr.data.to_vec()),
                _ => None,
            })
            .flatten()
            .collect();
        assert_eq!(stderr, b"1\n2\n3\n");
    });
}
