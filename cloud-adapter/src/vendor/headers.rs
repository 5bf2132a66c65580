//! Response headers that most vendors share: the remaining calls of a rate limit, and the ID of the request.

use std::time::Duration;

use cloud_budget::Hint;
use http::{HeaderMap, header};
use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};

/// Prefixes of the headers for the limit, the remaining calls and the reset. Source: IETF draft "RateLimit header fields for HTTP" up to
/// revision 6, and variants that vendors use.
const PREFIXES: [&str; 3] = ["ratelimit", "x-ratelimit", "x-rate-limit"];
const REQUEST_IDS: [&str; 5] =
    ["x-request-id", "x-amzn-requestid", "x-ms-request-id", "x-openstack-request-id", "x-correlation-id"];
/// Larger values of the reset header are Unix timestamps instead of seconds from now.
const EPOCH_FROM: f64 = 1e9;

/// `None`: the headers contain no number of remaining calls.
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

pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let named = REQUEST_IDS.iter().find_map(|name| headers.get(*name));
    named?.to_str().ok().map(str::to_owned)
}

/// The time of the answer by the vendor's clock, which may differ from this host's clock.
fn answered(headers: &HeaderMap) -> Option<f64> {
    let text = headers.get(header::DATE)?.to_str().ok()?;
    Some(
        DateTimeParser::new().parse_timestamp(text).ok()?.duration_since(Timestamp::UNIX_EPOCH).as_secs_f64(),
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts are small, and saturate")]
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
    fn rate_limit_headers_are_read_in_all_dialects() {
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
    fn vendor_request_id_is_read_from_headers() {
        assert_eq!(request_id(&headers(&[("x-amzn-requestid", "abc")])).as_deref(), Some("abc"));
        assert_eq!(request_id(&headers(&[("content-type", "abc")])), None);
    }
}
