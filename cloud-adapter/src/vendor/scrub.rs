//! Removes secrets from the vendor's answers, because some vendors repeat the request, including credentials, in errors.
//!
//! Successful answers are scrubbed, too, because a proxy may answer 200 with a page about the request, and errors quote unreadable answers.

use bytes::Bytes;
use http::HeaderValue;
use secrecy::{ExposeSecret as _, SecretString};

use super::{VendorRequest, VendorResponse};

const SCRUBBED: &str = "[secret]";
/// Minimum length of a secret. Shorter values would occur in many texts by chance.
const LENGTH_MIN: usize = 4;

/// Removes secrets from a whole answer before the driver reads it, so that no excerpt contains part of a secret. The rest is unchanged.
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

/// Returns the secrets of a request: the last word of each header that the driver marked as sensitive, such as the token of `Bearer TOKEN`.
/// The answer may repeat these secrets, even if the credentials have changed since the request.
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
    fn only_secrets_are_scrubbed_from_answers() {
        let secrets = ["hunter2".into(), "".into(), "and".into()];
        for (body, wanted) in [
            ("token hunter2 is bad, hunter2!", "token [secret] is bad, [secret]!"),
            ("hunter and gatherer", "hunter and gatherer"),
        ] {
            assert_eq!(scrubbed(body, body, &secrets), (wanted.to_owned(), wanted.to_owned()));
        }
    }

    #[test]
    fn sensitive_headers_are_secrets() {
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
