//! Verifies that callers without a valid identity are refused.

use std::{fs, time::Duration};

use cloud_api_proto::Reason;
use futures::future;
use tonic::Code;
use tonic_types::StatusExt as _;

use super::{HEALTH, METHODS, NOWHERE, garbage};
use crate::{checks::prelude::*, lane};

/// Maximum time for which a port without gRPC may leave a call unanswered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// common.proto, `REASON_CALLER_UNAUTHENTICATED`: for every method, a caller without a valid identity is refused before the request is
/// decoded. The port of metrics and probes needs no identity, so it must serve no part of the contract.
pub(super) async fn no_identity(cx: &Context) -> Verdict {
    let anonymous = cx.api(Role::Anonymous)?;
    for path in METHODS.into_iter().chain([HEALTH, NOWHERE]) {
        for message in [Vec::new(), garbage()] {
            expect::refused(anonymous.raw(path, message).await, Reason::CallerUnauthenticated)?;
        }
    }
    for header in worthless(cx)? {
        for path in METHODS {
            let answer = anonymous.raw_as(&header, path, garbage()).await;
            expect::refused(answer, Reason::CallerUnauthenticated)?;
        }
    }
    probe_port(cx).await
}

/// Values of the `authorization` header that prove no identity. Empty if callers do not use the header.
fn worthless(cx: &Context) -> Result<Vec<String>, Stop> {
    let identity = cx.lane().params.identities.of(Role::ServiceController);
    let Some(path) = identity.and_then(|identity| identity.token_file.as_ref()) else {
        return Ok(Vec::new());
    };
    let wants = "identities.serviceController.tokenFile can be read";
    let token = fs::read_to_string(path).map_err(|error| Stop::failed(wants, error.to_string()))?;
    let forged = forged(token.trim());
    Ok(vec!["Bearer ".to_owned(), "Bearer conformance".to_owned(), format!("Bearer {forged}")])
}

/// The token with a changed letter near its end, in the signature.
fn forged(token: &str) -> String {
    let at = token.chars().count().saturating_sub(10);
    let other = |letter| if letter == 'A' { 'B' } else { 'A' };
    token.chars().enumerate().map(|(n, letter)| if n == at { other(letter) } else { letter }).collect()
}

async fn probe_port(cx: &Context) -> Verdict {
    let params = &cx.lane().params;
    let Some(probes) = params.http.as_ref() else {
        cx.without(Need::Param("lanes[].http"));
        return Ok(());
    };
    let api = lane::visit_plainly(params, probes).map_err(|error| {
        Stop::failed(
            "lanes[].http is the URL of metrics and probes, such as http://127.0.0.1:10273",
            error.to_string(),
        )
    })?;
    let api = cx.over(Role::Anonymous, api).within(ANSWER_TIMEOUT);
    let answers = future::join_all(METHODS.map(|path| served(&api, path))).await;
    answers.into_iter().collect()
}

/// Asserts that the endpoint does not serve the contract. A plain HTTP server answers with an HTTP error, or closes the connection.
async fn served(api: &Api, path: &'static str) -> Verdict {
    let wants = format!("the port of metrics and probes does not serve {path}");
    match api.raw(path, Vec::new()).await as CallResult<_> {
        Ok(_) => Err(Stop::failed(wants, "OK")),
        Err(error) => {
            let codes = [
                Code::Unimplemented,
                Code::Unavailable,
                Code::Unknown,
                Code::Internal,
                Code::DeadlineExceeded,
                // The connection ended while the call waited to be sent.
                Code::Cancelled,
            ];
            // Without ErrorInfo, the client derives the reason from the code.
            let explained = error.status.get_error_details().error_info().is_some();
            let foreign = !explained && codes.contains(&error.status.code());
            expect::that(foreign, &wants, || error.to_string())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forged_token_differs_in_one_letter() {
        assert_eq!(forged("AAAAAAAAAAAAA"), "AAABAAAAAAAAA");
        assert_eq!(forged("short"), "Ahort");
        assert_eq!(forged(""), "");
    }
}
