//! Response headers that most vendors share: what is left of a rate limit, and the name of the request.

use std::time::Duration;

use cloud_budget::Hint;
use http::{HeaderMap, header};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};

/// Prefixes of the three headers. Source: IETF draft "RateLimit header fields for HTTP" until its revision 6, and what vendors
/// made of it.
const PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit", "x-rate-limit"];
/// Where vendors write the name of the request.
const REQUEST_IDS: [&str; 5] =
    ["x-request-id", "x-amzn-requestid", "x-ms-request-id", "x-openstack-request-id", "x-correlation-id"];
/// A reset above it is no number of seconds from now but since 1970.
const EPOCH_FROM: f64 = 1e9;

/// What the vendor says is left. `None` without a remaining count.
pub(super) fn hint(headers: &HeaderMap) -> Option<Hint> {
    let number = |name: &str| {
        let named = PREFIXES.iter().find_map(|prefix| headers.get(format!("{prefix}-{name}")));
        // A limit may be followed by its windows: `100, 100;w=60`.
        let text = named?.to_str().ok()?;
        text.split([',', ';']).next()?.trim().parse::<f64>().ok().filter(|number| *number >= 0.0)
    };
    let reset = number("reset").and_then(|reset| {
        let seconds = if reset < EPOCH_FROM { reset } else { (reset - answered(headers)?).max(0.0) };
        Duration::try_from_secs_f64(seconds).ok()
    });
    Some(Hint {
        bucket: None,
        remaining: whole(number("remaining")?),
        limit: number("limit").map(whole),
        reset,
    })
}

/// The vendor's own name for the request.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let named = REQUEST_IDS.iter().find_map(|name| headers.get(*name));
    named?.to_str().ok().map(str::to_owned)
}

/// When the vendor answered, by its own clock: ours may differ.
fn answered(headers: &HeaderMap) -> Option<f64> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    Some(
        DateTimeParser::new().parse_timestamp(text).ok()?.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64(),
    )
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are small, and a larger one is as good as the largest"
)]
fn whole(number: f64) -> u64 {
    number as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        lines
            .iter()
            .map(|(name, value)| (name.parse().expect("a name"), value.parse().expect("a value")))
            .collect()
    }

    #[test]
    fn what_is_left_is_read_in_all_dialects() {
        let seconds = |seconds| Some(Duration::from_secs(seconds));
        for (name, lines, wanted) in [
            (
                "draft",
                &[
                    ("ratelimit-limit", "100, 100;w=60"),
                    ("ratelimit-remaining", "7"),
                    ("ratelimit-reset", "5"),
                ][..],
                Some((Some(100), 7, seconds(5))),
            ),
            (
                "x-, since 1970",
                &[
                    ("x-ratelimit-remaining", "0"),
                    ("x-ratelimit-reset", "1795252800"),
                    ("date", "Sat, 21 Nov 2026 08:00:00 GMT"),
                ],
                Some((None, 0, seconds(4_800))),
            ),
            (
                "since 1970, no date",
                &[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", "1795252800")],
                Some((None, 3, None)),
            ),
            ("remaining alone", &[("x-rate-limit-remaining", "12")], Some((None, 12, None))),
            ("no count", &[("ratelimit-limit", "100")], None),
            ("nonsense", &[("ratelimit-remaining", "many")], None),
            ("negative", &[("ratelimit-remaining", "-1")], None),
            ("nothing", &[], None),
        ] {
            let found = hint(&headers(lines)).map(|hint| (hint.limit, hint.remaining, hint.reset));
            assert_eq!(found, wanted, "{name}");
        }
    }

    #[test]
    fn the_request_has_a_name_of_the_vendors() {
        assert_eq!(request_id(&headers(&[("x-amzn-requestid", "abc")])).as_deref(), Some("abc"));
        assert_eq!(request_id(&headers(&[("content-type", "abc")])), None);
    }
}
