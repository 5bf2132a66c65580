//! What the answer of a process means.

use ::pages::report::{AdapterStatus, ControllerStatus, Explanation, Plans};
use http::StatusCode;
use serde::de::DeserializeOwned;

use crate::{http::Answer, options::Component};

/// Characters of a refusal that are shown.
const SHOWN: usize = 300;

/// A page that says whose it is. Readers take what is absent for empty, so that any JSON would do for a page.
pub(crate) trait Signed: DeserializeOwned {
    /// The name of the component. Empty: it is no page of ours.
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
    /// Its own name is the vendor's, such as `adapter-sim`.
    fn signature(&self) -> &str {
        if self.adapter.is_empty() || self.instance_id.is_empty() {
            ""
        } else {
            Component::CloudAdapter.name()
        }
    }
}

/// The page of this component, or why there is none. A page of an object that is not known is one, too.
pub(crate) fn read<T: Signed>(component: Component, answer: &Answer, path: &str) -> Result<T, String> {
    let page = path.split('?').next().unwrap_or(path);
    let parsed = serde_json::from_slice::<T>(&answer.body);
    match (answer.status, parsed) {
        (StatusCode::OK, Err(error)) => Err(format!("{page} is no page that this cloudctl reads: {error}")),
        (StatusCode::NOT_FOUND, parsed) if parsed.as_ref().map_or(true, |it| it.signature().is_empty()) => {
            Err(format!("it has no {page}: it is older than this cloudctl, or something else listens there"))
        }
        (StatusCode::OK | StatusCode::NOT_FOUND, Ok(read)) => match read.signature() {
            it if it == component.name() => Ok(read),
            "" => Err(format!("{page} is no page of ours: something else listens there")),
            other => Err(format!("this is the page of {other}")),
        },
        (status, _) => {
            let said = String::from_utf8_lossy(&answer.body);
            let said: String = said.trim().chars().take(SHOWN).collect();
            Err(format!("{page} answered {}: {said}", status.as_u16()))
        }
    }
}
