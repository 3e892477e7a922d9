//! What the process is, for whoever receives its telemetry.

use std::env::consts;

use opentelemetry::{KeyValue, Value};
use opentelemetry_sdk::{Resource, resource::TelemetryResourceDetector};

use crate::init::Process;

/// What is known of the process, with what the environment says on top.
pub(crate) fn resource(process: &Process, attributes: &[(String, String)]) -> Resource {
    let of = |name: &'static str, value: Value| KeyValue::new(name, value);
    let host = hostname::get().ok().map(|name| name.to_string_lossy().into_owned());
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_attributes([
            of("service.name", process.name.into()),
            of("service.version", process.version.into()),
            of("service.instance.id", process.instance.clone().into()),
            of("os.type", os_type().into()),
            of("host.arch", host_arch().into()),
        ])
        .with_attributes(host.map(|name| of("host.name", name.into())))
        .with_attributes(attributes.iter().map(|(name, value)| KeyValue::new(name.clone(), value.clone())))
        .build()
}

/// The conventions' word for the operating system.
fn os_type() -> &'static str {
    match consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

/// The conventions' word for the architecture.
fn host_arch() -> &'static str {
    match consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "arm" => "arm32",
        "powerpc64" => "ppc64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::Key;

    use super::*;

    #[test]
    fn the_environment_outranks_what_weft_knows() {
        let process = Process { name: "weft-node", version: "1.2.3", instance: "i".into() };
        let resource = resource(&process, &[("service.name".into(), "mine".into())]);
        let get = |name: &'static str| resource.get(&Key::new(name)).map(|value| value.to_string());
        assert_eq!(get("service.name").as_deref(), Some("mine"));
        assert_eq!(get("service.version").as_deref(), Some("1.2.3"));
        assert_eq!(get("service.instance.id").as_deref(), Some("i"));
        assert_eq!(get("telemetry.sdk.language").as_deref(), Some("rust"));
        assert!(get("host.name").is_some() && get("os.type").is_some() && get("host.arch").is_some());
    }
}
