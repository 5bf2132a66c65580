//! Interprets the answer of a process to a request for a page.

use http::StatusCode;
use serde::de::DeserializeOwned;
use telemetry::report::{AdapterStatus, ControllerStatus, Explanation, Plans};

use crate::{http::HttpResponse, options::Component};

/// Maximum number of characters that are shown of an error response.
const SHOWN: usize = 300;

/// A page that names the component that sent it. Missing fields count as empty, so without this check any JSON object would be accepted as
/// a page.
pub(crate) trait Signed: DeserializeOwned {
    /// The name of the component. Empty: the page does not belong to a component.
    fn signature(&self) -> &str;
}

impl Signed for ControllerStatus {
    fn signature(&self) -> &str {
        &self.controller
    }
}

impl Signed for Explanation {
    fn signature(&self) -> &str {
        &self.controller
    }
}

impl Signed for Plans {
    fn signature(&self) -> &str {
        &self.controller
    }
}

impl Signed for AdapterStatus {
    /// An adapter's page contains the adapter's own name, such as `adapter-sim`. The fields are only checked for presence.
    fn signature(&self) -> &str {
        if self.adapter.is_empty() || self.instance_id.is_empty() {
            ""
        } else {
            Component::CloudAdapter.name()
        }
    }
}

/// Returns the page of this component, or the reason why it cannot be shown. A page about an unknown object is valid, too.
pub(crate) fn read<T: Signed>(component: Component, answer: &HttpResponse, path: &str) -> Result<T, String> {
    let page = path.split('?').next().unwrap_or(path);
    let parsed = serde_json::from_slice::<T>(&answer.body);
    match (answer.status, parsed) {
        (StatusCode::OK, Err(error)) => Err(format!("cannot parse {page}: {error}")),
        (StatusCode::NOT_FOUND, parsed) if parsed.as_ref().map_or(true, |it| it.signature().is_empty()) => {
            Err(format!(
                "has no page {page}: the process is older than this cloudctl, or is a different program"
            ))
        }
        (StatusCode::OK | StatusCode::NOT_FOUND, Ok(read)) => match read.signature() {
            it if it == component.name() => Ok(read),
            "" => Err(format!(
                "{page} is not a page of a controller or adapter: the process is a different program"
            )),
            other => Err(format!("this page belongs to {other}")),
        },
        (status, _) => {
            let said = String::from_utf8_lossy(&answer.body);
            let said: String = said.trim().chars().take(SHOWN).collect();
            Err(format!("{page} answered {}: {said}", status.as_u16()))
        }
    }
}
