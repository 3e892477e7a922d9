//! The coordinator: it answers, speaks our link, and its clock is ours.

use jiff::SignedDuration;
use weft_client::Coordinator;
use weft_core::limits;
use weft_node::introduce;
use weft_proto::LINK_VERSIONS;

use super::Check;

/// The header that tells its clock counts whole seconds.
const NOTICED: SignedDuration = SignedDuration::from_secs(5);

/// Asks the coordinator.
pub(super) async fn checks(coordinator: &Coordinator) -> Vec<Check> {
    let answer = match introduce(coordinator).await {
        Ok(answer) => answer,
        Err(why) => {
            let advice = "start it, or name another with --coordinator or WEFT_COORDINATOR";
            return vec![Check::fail("coordinator", format!("{coordinator} cannot be used: {why}"), advice)];
        }
    };
    let mut checks = vec![Check::ok("coordinator", format!("{coordinator} answers"))];
    checks.push(match answer.skew {
        None => Check::ok(
            "link",
            format!("a version is spoken by both sides; ours are {} to {}", LINK_VERSIONS.1, LINK_VERSIONS.0),
        ),
        Some(skew) => Check::fail("link", skew, "upgrade the older of the two; coordinators come first"),
    });
    checks.extend(answer.ahead.map(clock));
    checks
}

fn clock(ahead: SignedDuration) -> Check {
    let found = match ahead.abs() {
        small if small <= NOTICED => {
            return Check::ok("clock", "the same as the coordinator's, to a few seconds");
        }
        large => format!(
            "{} s {} the coordinator's",
            large.as_secs(),
            if ahead.is_negative() { "ahead of" } else { "behind" }
        ),
    };
    let advice = "set both clocks by NTP; work that waits counts as expired by the stricter clock";
    // By then every dispatch has expired when it arrives.
    let expired = ahead.abs().unsigned_abs() >= limits::QUEUE_WAIT && ahead.is_negative();
    if expired { Check::fail("clock", found, advice) } else { Check::warn("clock", found, advice) }
}

#[cfg(test)]
mod tests {
    use super::{super::Verdict, *};

    #[test]
    fn a_clock_that_makes_every_dispatch_expire_fails() {
        let verdict = |seconds| clock(SignedDuration::from_secs(seconds)).verdict;
        assert_eq!(
            [0, -1, 30, -30, 600, -600].map(verdict),
            [Verdict::Ok, Verdict::Ok, Verdict::Warn, Verdict::Warn, Verdict::Warn, Verdict::Fail]
        );
        assert!(clock(SignedDuration::from_secs(-600)).found.contains("600 s ahead of"));
    }
}
