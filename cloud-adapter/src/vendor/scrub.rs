//! Takes secrets out of what a vendor answers: some send the request back in their errors, credentials included.

use std::fmt;

use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};

use super::VendorResponse;

/// What stands where a secret stood.
const SCRUBBED: &str = "[secret]";
/// Shorter ones are no secrets, and would be found everywhere.
const LENGTH_MIN: usize = 4;

/// What must not get out.
pub(super) struct Secrets(Vec<SecretString>);

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} secrets", self.0.len())
    }
}

impl Secrets {
    pub(super) fn new(mut secrets: Vec<SecretString>) -> Self {
        secrets.retain(|secret| secret.expose_secret().len() >= LENGTH_MIN);
        Self(secrets)
    }

    /// Before anybody reads a refusal, so that no excerpt holds half of a secret. Answers that are none stay as they are.
    pub(super) fn scrub(&self, response: &mut VendorResponse) {
        if response.status().is_success() {
            return;
        }
        let text = String::from_utf8_lossy(response.body());
        if !self.0.iter().any(|secret| text.contains(secret.expose_secret())) {
            return;
        }
        let clean = self
            .0
            .iter()
            .fold(text.into_owned(), |text, secret| text.replace(secret.expose_secret(), SCRUBBED));
        *response.body_mut() = Bytes::from(clean);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_loses_the_secret_and_nothing_else() {
        let secrets = Secrets::new(vec!["hunter2".into(), "".into()]);
        for (status, body, wanted) in [
            (401, "token hunter2 is bad, hunter2!", "token [secret] is bad, [secret]!"),
            (500, "hunter", "hunter"),
            (200, "hunter2", "hunter2"),
        ] {
            let mut response = http::Response::new(Bytes::from(body));
            *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
            secrets.scrub(&mut response);
            assert_eq!(response.body(), wanted);
        }
        assert!(!format!("{secrets:?}").contains("hunter2"));
    }
}
