//! Builds the request of the log-in and parses its answer, without side effects. Source: Identity API v3, "Password authentication with
//! scoped authorization" and related sections.

#[cfg(test)]
mod tests;

use std::time::Duration;

use cloud_adapter::{
    driver::{Fault, VendorError},
    vendor::VendorResponse,
};
use http::HeaderValue;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    catalogue::{Endpoints, Entry},
    cloud::{ApplicationCredential, Cloud, Credentials, Domain, User, WantedProject},
};

/// Header with the new token.
const SUBJECT_TOKEN: &str = "x-subject-token";
/// The percentage of a token's lifetime after which the token is renewed. During the remaining lifetime, calls in progress can finish with
/// the old token.
const RENEWED_AT: u32 = 80;

#[derive(Debug)]
pub(crate) struct Access {
    /// The token, which is marked as sensitive, so that it is never logged.
    pub(crate) token: HeaderValue,
    pub(crate) project: Project,
    pub(crate) endpoints: Endpoints,
    pub(crate) renew_at: Instant,
    pub(crate) ends_at: Instant,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Project {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) domain: ProjectDomain,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct ProjectDomain {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
}

#[derive(Deserialize)]
struct TokenResponse {
    token: Token,
}

#[derive(Deserialize)]
struct Token {
    issued_at: Timestamp,
    expires_at: Timestamp,
    project: Option<Project>,
    #[serde(default)]
    catalog: Vec<Entry>,
}

/// Builds the body of `POST /v3/auth/tokens`, which contains the secret.
pub(crate) fn request(cloud: &Cloud) -> Value {
    let (method, identity) = match &cloud.credentials {
        Credentials::Password { user: who, password } => {
            let mut who = user(who);
            if let Value::Object(who) = &mut who {
                who.insert("password".to_owned(), password.expose_secret().into());
            }
            ("password", json!({ "user": who }))
        }
        Credentials::Token(token) => ("token", json!({ "id": token.expose_secret() })),
        Credentials::ApplicationCredential { credential, secret } => {
            let secret = secret.expose_secret();
            let identity = match credential {
                ApplicationCredential::Id(id) => json!({ "id": id, "secret": secret }),
                ApplicationCredential::Name(name, who) => {
                    json!({ "name": name, "user": user(who), "secret": secret })
                }
            };
            ("application_credential", identity)
        }
    };
    let mut auth = json!({ "identity": { "methods": [method], method: identity } });
    if let (Some(scope), Value::Object(auth)) = (scope(cloud), &mut auth) {
        auth.insert("scope".to_owned(), scope);
    }
    json!({ "auth": auth })
}

/// Returns the scope of the token. Returns `None` for an application credential, because its project is fixed, and Keystone refuses a scope
/// for it.
fn scope(cloud: &Cloud) -> Option<Value> {
    if matches!(cloud.credentials, Credentials::ApplicationCredential { .. }) {
        return None;
    }
    if let Some(trust) = &cloud.trust {
        return Some(json!({ "OS-TRUST:trust": { "id": trust } }));
    }
    let project = match &cloud.project {
        WantedProject { id: Some(id), .. } => json!({ "id": id }),
        WantedProject { name, domain: of, .. } => json!({ "name": name, "domain": of.as_ref().map(domain) }),
    };
    Some(json!({ "project": project }))
}

fn user(user: &User) -> Value {
    match user {
        User::Id(id) => json!({ "id": id }),
        User::Name(name, of) => json!({ "name": name, "domain": domain(of) }),
    }
}

fn domain(domain: &Domain) -> Value {
    match domain {
        Domain::Id(id) => json!({ "id": id }),
        Domain::Name(name) => json!({ "name": name }),
    }
}

/// Parses the answer to a log-in that was sent at time `asked`.
pub(crate) fn read(cloud: &Cloud, response: &VendorResponse, asked: Instant) -> Result<Access, VendorError> {
    let unread = |what: &dyn std::fmt::Display| {
        VendorError::nonsense(format!("cannot parse the answer to the log-in at {}: {what}", cloud.auth_url))
    };
    let TokenResponse { token: Token { issued_at, expires_at, project, catalog } } =
        serde_json::from_slice(response.body()).map_err(|error| unread(&error))?;
    let mut token =
        response.headers().get(SUBJECT_TOKEN).cloned().ok_or_else(|| unread(&"it has no token"))?;
    token.set_sensitive(true);
    let project = right(&cloud.project, project)?;
    // The lifetime is the difference between the two times in Keystone's answer, because Keystone's clock may differ from the local clock.
    let life = Duration::try_from(expires_at.duration_since(issued_at)).unwrap_or_default();
    Ok(Access {
        token,
        project,
        endpoints: Endpoints::find(&catalog, &cloud.region, cloud.interface, &cloud.overrides),
        renew_at: asked + life * RENEWED_AT / 100,
        ends_at: asked + life,
    })
}

/// Checks that the token is for the configured project. With a token for another project, all instances would seem to be deleted.
pub(crate) fn right(wanted: &WantedProject, found: Option<Project>) -> Result<Project, VendorError> {
    let refused = |text: String| Err(VendorError::new(Fault::Forbidden, text));
    let Some(found) = found else {
        return refused(
            "the token has no project: set project_id, or use credentials of a project".to_owned(),
        );
    };
    let differs =
        |wanted: &Option<String>, found: &str| wanted.as_deref().is_some_and(|wanted| wanted != found);
    let domain = match &wanted.domain {
        // The domain belongs to the project name. If no project name is configured, the domain may be the domain of the user.
        Some(_) if wanted.name.is_none() => false,
        Some(Domain::Id(id)) => *id != found.domain.id,
        Some(Domain::Name(name)) => !found.domain.name.is_empty() && *name != found.domain.name,
        None => false,
    };
    if differs(&wanted.id, &found.id) || differs(&wanted.name, &found.name) || domain {
        let reported = [&wanted.id, &wanted.name].into_iter().flatten().map(String::as_str);
        let reported: Vec<&str> = reported.collect();
        return refused(format!(
            "the credentials are for project {} ({}) in domain {}, but {} is configured: correct \
             project_id or project_name, or use credentials of that project",
            found.name,
            found.id,
            found.domain.name,
            reported.join(" "),
        ));
    }
    Ok(found)
}
