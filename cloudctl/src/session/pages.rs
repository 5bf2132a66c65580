//! What the answer of a process means.

use http::StatusCode;
use serde::de::DeserializeOwned;

use crate::http::Answer;

/// Characters of a refusal that are shown.
const SHOWN: usize = 300;

/// The page, or why there is none. A page of an object that is not known is one, too.
pub(crate) fn read<T: DeserializeOwned>(answer: &Answer, path: &str) -> Result<T, String> {
    let page = path.split('?').next().unwrap_or(path);
    let parsed = serde_json::from_slice(&answer.body);
    match (answer.status, parsed) {
        (StatusCode::OK, Ok(page)) => Ok(page),
        (StatusCode::OK, Err(error)) => Err(format!("{page} is no page that this cloudctl reads: {error}")),
        (StatusCode::NOT_FOUND, Ok(unknown)) => Ok(unknown),
        (StatusCode::NOT_FOUND, Err(_)) => {
            Err(format!("it has no {page}: it is older than this cloudctl, or something else listens there"))
        }
        (status, _) => {
            let said = String::from_utf8_lossy(&answer.body);
            let said: String = said.trim().chars().take(SHOWN).collect();
            Err(format!("{page} answered {}: {said}", status.as_u16()))
        }
    }
}
