//! Takes secrets out of what a vendor answers: some send the request back in their errors, credentials included.
//!
//! Successes are no exception: a proxy may answer 200 with a page about the request, and what cannot be read is quoted.

use bytes::Bytes;
use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};

use super::{VendorRequest, VendorResponse};

/// What stands where a secret stood.
const SCRUBBED: &str = "[secret]";
/// Shorter ones are no secrets, and would be found everywhere.
const LENGTH_MIN: usize = 4;

/// Takes secrets out of an answer before anybody reads it, so that no excerpt holds half of one. What is not a secret stays as it is.
pub(super) fn scrub(response: &mut VendorResponse, secrets: &[SecretString]) {
    for secret in secrets.iter().map(|secret| secret.expose_secret()) {
        if secret.len() < LENGTH_MIN {
            continue;
        }
        for value in response.headers_mut().values_mut() {
            let text = String::from_utf8_lossy(value.as_bytes());
            if text.contains(secret) {
                let clean = HeaderValue::try_from(text.replace(secret, SCRUBBED));
                *value = clean.unwrap_or_else(|_odd| HeaderValue::from_static(SCRUBBED));
            }
        }
        let text = String::from_utf8_lossy(response.body());
        if text.contains(secret) {
            let clean = Bytes::from(text.replace(secret, SCRUBBED));
            *response.body_mut() = clean;
        }
    }
}

/// The secrets that a request carries: the last word of each header that its driver marked as sensitive, such as the token of
/// `Bearer TOKEN`. Whatever the credentials are when the answer comes, these are what it may repeat.
pub(super) fn carried(request: &VendorRequest) -> impl Iterator<Item = SecretString> {
    let sensitive = request.headers().values().filter(|value| value.is_sensitive());
    sensitive.filter_map(|value| Some(value.to_str().ok()?.rsplit(' ').next()?.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrubbed(header: &str, body: &'static str, secrets: &[SecretString]) -> (String, String) {
        let mut response = http::Response::new(Bytes::from(body));
        response.headers_mut().insert("x-request-id", header.parse().expect("a header"));
        scrub(&mut response, secrets);
        let header = response.headers()["x-request-id"].to_str().expect("text").to_owned();
        (header, String::from_utf8(response.body().to_vec()).expect("text"))
    }

    #[test]
    fn an_answer_loses_the_secret_and_nothing_else() {
        let secrets = ["hunter2".into(), "".into(), "and".into()];
        for (body, wanted) in [
            ("token hunter2 is bad, hunter2!", "token [secret] is bad, [secret]!"),
            ("hunter and gatherer", "hunter and gatherer"),
        ] {
            assert_eq!(scrubbed(body, body, &secrets), (wanted.to_owned(), wanted.to_owned()));
        }
    }

    #[test]
    fn what_a_request_carries_is_a_secret_if_it_is_marked_so() {
        let mut request = http::Request::new(Bytes::new());
        for (name, text, sensitive) in
            [("authorization", "Bearer hunter2", true), ("x-key", "k3y7", true), ("accept", "json", false)]
        {
            let mut value = HeaderValue::from_static(text);
            value.set_sensitive(sensitive);
            request.headers_mut().insert(name, value);
        }
        let carried: Vec<_> = carried(&request).map(|one| one.expose_secret().to_owned()).collect();
        assert_eq!(carried, ["hunter2", "k3y7"]);
    }
}
