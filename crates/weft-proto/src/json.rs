//! Messages as JSON, in the canonical mapping of protobuf.

use std::sync::LazyLock;

use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, SerializeOptions};
use serde_json::Value;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(crate::DESCRIPTORS).expect("the descriptors were made by the build of this crate")
});

/// A message as JSON. `name` is its full name, such as `weft.v1.Skill`. Fields at their default are included, so
/// that a reader sees every field there is.
pub fn to_value(name: &str, message: &impl Message) -> Value {
    let Some(descriptor) = POOL.get_message_by_name(name) else { return Value::Null };
    let Ok(dynamic) = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice()) else {
        return Value::Null;
    };
    let options = SerializeOptions::new().skip_default_fields(false);
    dynamic.serialize_with_options(serde_json::value::Serializer, &options).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::v1;

    use super::*;

    #[test]
    fn messages_become_canonical_json() {
        let node = v1::Node { id: "n1".into(), state: v1::NodeState::Connected.into(), ..Default::default() };
        let json = to_value("weft.v1.Node", &node);
        assert_eq!(json["id"], "n1");
        assert_eq!(json["state"], "NODE_STATE_CONNECTED");
        assert_eq!(json["eligibleSkills"], 0);
    }
}
