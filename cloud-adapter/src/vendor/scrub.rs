//! Takes secrets out of what a vendor answers: some send the request back in their errors, credentials included.

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};

use super::VendorResponse;

/// What stands where a secret stood.
const SCRUBBED: &str = "[secret]";
/// Shorter ones are no secrets, and would be found everywhere.
const LENGTH_MIN: usize = 4;

/// Takes secrets out of a refusal before anybody reads it, so that no excerpt holds half of one. Other answers stay as they are.
pub(super) fn scrub(response: &mut VendorResponse, secrets: &[SecretString]) {
    if response.status().is_success() {
        return;
    }
    let secrets = secrets.iter().map(|secret| secret.expose_secret());
    let secrets = secrets.filter(|secret| secret.len() >= LENGTH_MIN);
    let text = String::from_utf8_lossy(response.body());
    let clean = secrets.fold(text.to_string(), |text, secret| text.replace(secret, SCRUBBED));
    if clean != text {
        *response.body_mut() = Bytes::from(clean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_loses_the_secret_and_nothing_else() {
        let secrets = ["hunter2".into(), "".into()];
        for (status, body, wanted) in [
            (401, "token hunter2 is bad, hunter2!", "token [secret] is bad, [secret]!"),
            (500, "hunter", "hunter"),
            (200, "hunter2", "hunter2"),
        ] {
            let mut response = http::Response::new(Bytes::from(body));
            *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
            scrub(&mut response, &secrets);
            assert_eq!(response.body(), wanted);
        }
    }
}
