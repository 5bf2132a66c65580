//! Finds out what the user can do about an error of a registry, from the text of crane or cosign. Both use go-containerregistry. Pure.

/// The words before the status in errors of go-containerregistry.
const STATUS: &str = "unexpected status code ";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    /// The registry does not know the user, or the user may not do this.
    Login,
    /// The registry, or a server before it, failed.
    Failure,
    /// The registry has no such artifact or repository.
    Unknown,
    /// The registry speaks HTTP without TLS.
    Plain,
    Other,
}

impl Refusal {
    const fn hint(self) -> &'static str {
        match self {
            Self::Login => "log in with `docker login` or `crane auth login`, as a user who may write there",
            Self::Failure => {
                "the registry failed, not this command: repeat the command later, or see the log of the registry"
            }
            Self::Unknown => "check the name of --registry, and that the release was pushed there",
            Self::Plain => "add --http, because this registry has no TLS",
            Self::Other => {
                "check the name of --registry, and the network; add --http for a registry without TLS"
            }
        }
    }
}

/// Adds to an error what failed and what to do.
pub(super) fn explained<T>(result: anyhow::Result<T>, what: &str) -> anyhow::Result<T> {
    result.map_err(|error| {
        let hint = of(&format!("{error:#}")).hint();
        error.context(format!("{what}: {hint}"))
    })
}

fn of(said: &str) -> Refusal {
    let has = |code: &str| said.contains(&format!(": {code}: "));
    match status(said) {
        Some(401 | 403) => Refusal::Login,
        Some(404) => Refusal::Unknown,
        Some(429 | 500..=599) => Refusal::Failure,
        // With a body in the format of the registries, the error has its code instead of the status.
        _ if has("UNAUTHORIZED") || has("DENIED") => Refusal::Login,
        _ if has("MANIFEST_UNKNOWN") || has("NAME_UNKNOWN") => Refusal::Unknown,
        _ if has("UNKNOWN") || has("UNAVAILABLE") || has("TOOMANYREQUESTS") => Refusal::Failure,
        _ if said.contains("server gave HTTP response to HTTPS client") => Refusal::Plain,
        _ => Refusal::Other,
    }
}

fn status(said: &str) -> Option<u16> {
    let (_, rest) = said.split_once(STATUS)?;
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::{Refusal, explained, of};

    #[test]
    fn a_login_is_proposed_only_if_the_registry_refuses_the_user() {
        let cases = [
            (
                "crane push: PUT https://r.example/v2/a/manifests/1: unexpected status code 401 Unauthorized",
                Refusal::Login,
            ),
            (
                "crane push: HEAD https://r.example/v2/a: unexpected status code 403 Forbidden (HEAD responses have no body, use GET for details)",
                Refusal::Login,
            ),
            ("cosign sign: GET https://r.example/v2/: UNAUTHORIZED: authentication required", Refusal::Login),
            (
                "crane push: POST https://r.example/v2/a/blobs/uploads/: DENIED: requested access is denied",
                Refusal::Login,
            ),
            (
                "crane push: POST http://r.example/v2/a/blobs/uploads/: unexpected status code 500 Internal Server Error: 401",
                Refusal::Failure,
            ),
            (
                "crane push: PUT https://r.example/v2/a: unexpected status code 503 Service Unavailable",
                Refusal::Failure,
            ),
            ("crane push: GET https://r.example/v2/a: UNKNOWN: unknown error; map[]", Refusal::Failure),
            (
                "crane digest: HEAD https://r.example/v2/a: unexpected status code 404 Not Found",
                Refusal::Unknown,
            ),
            (
                "crane digest: GET https://r.example/v2/a: MANIFEST_UNKNOWN: manifest unknown",
                Refusal::Unknown,
            ),
            (
                "crane digest: Get \"https://r.example/v2/\": http: server gave HTTP response to HTTPS client",
                Refusal::Plain,
            ),
            (
                "crane push: Get \"https://r.example/v2/\": dial tcp: lookup r.example: no such host",
                Refusal::Other,
            ),
        ];
        for (said, refusal) in cases {
            assert_eq!(of(said), refusal, "{said}");
        }
    }

    #[test]
    fn an_error_says_first_what_failed_and_what_to_do() {
        let said = "crane push: PUT http://r/v2/a: unexpected status code 500 Internal Server Error";
        let error = explained::<()>(Err(anyhow!(said)), "cannot push r/a:1").expect_err("an error");
        let text = format!("{error:#}");
        assert_eq!(text, format!("cannot push r/a:1: {}: {said}", Refusal::Failure.hint()));
        assert!(!text.contains("docker login"), "{text}");
        assert!(explained(Ok(()), "x").is_ok());
    }
}
