//! A session in an OpenStack project: a token, and calls in JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use http::StatusCode;
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::http::{Http, HttpResponse};

/// The deadline of a call. The services are slow on a busy host.
const ANSWER_WITHIN: Duration = Duration::from_secs(180);
const TOKEN: &str = "x-auth-token";

/// A service, by its type in the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Keystone. Paths begin after `/v3`.
    Identity,
    /// Nova. Paths begin after `/v2.1`.
    Compute,
    /// Neutron. Paths begin with `/v2.0`.
    Network,
    /// Octavia. Paths begin with `/v2`.
    LoadBalancer,
    /// Glance. Paths begin with `/v2`.
    Image,
}

/// A user's name, password and project, all of them in the domain `Default`.
#[derive(Clone, Debug, Deserialize)]
pub struct Credentials {
    /// The URL of Keystone, with its version.
    pub auth_url: String,
    /// The user.
    pub username: String,
    /// The user's password.
    pub password: String,
    /// The project.
    pub project_name: String,
}

/// A session with a token.
#[derive(Debug)]
pub struct Account {
    http: Http,
    credentials: Credentials,
    session: Mutex<Session>,
    /// The project's ID.
    pub project: String,
    /// The user's ID.
    pub user: String,
}

#[derive(Clone, Debug)]
struct Session {
    token: String,
    endpoints: BTreeMap<String, String>,
}

/// The error answer of a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The call.
    pub call: String,
    /// The HTTP status.
    pub status: StatusCode,
    /// The body of the answer.
    pub text: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered {}: {}", self.call, self.status, self.text.trim())
    }
}

impl std::error::Error for Refusal {}

impl Service {
    /// The service's type in the catalogue.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
            Self::Image => "image",
        }
    }
}

impl Account {
    /// Opens a session with a new token.
    pub async fn log_in(credentials: Credentials) -> anyhow::Result<Self> {
        let http = Http::within(ANSWER_WITHIN)?;
        let (session, project, user) = session(&http, &credentials).await?;
        Ok(Self { http, credentials, session: Mutex::new(session), project, user })
    }

    /// The credentials of the session.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The URL of a service.
    pub fn endpoint(&self, service: Service) -> anyhow::Result<String> {
        let word = service.word();
        let session = self.session();
        let url = session.endpoints.get(word).with_context(|| format!("the catalogue has no {word}"))?;
        Ok(url.trim_end_matches('/').to_owned())
    }

    /// Sends a GET request.
    pub async fn get(&self, service: Service, path: &str) -> anyhow::Result<Value> {
        self.call(Method::GET, service, path, None).await
    }

    /// Sends a POST request.
    pub async fn post(&self, service: Service, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::POST, service, path, Some(body)).await
    }

    /// Sends a PUT request.
    pub async fn put(&self, service: Service, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::PUT, service, path, Some(body)).await
    }

    /// Sends a PATCH request, which only Keystone supports.
    pub async fn patch(&self, service: Service, path: &str, body: &Value) -> anyhow::Result<Value> {
        self.call(Method::PATCH, service, path, Some(body)).await
    }

    /// Deletes an object. An object that does not exist is not an error.
    pub async fn delete(&self, service: Service, path: &str) -> anyhow::Result<()> {
        match self.call(Method::DELETE, service, path, None).await {
            Err(error) if status_of(&error) == Some(StatusCode::NOT_FOUND) => Ok(()),
            done => done.map(drop),
        }
    }

    /// Sends a request, with a new token if the old one has expired.
    async fn call(
        &self,
        method: Method,
        service: Service,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Value> {
        let call = format!("{method} {}{path}", service.word());
        let url = format!("{}{path}", self.endpoint(service)?);
        let send = async |token: String| {
            self.http
                .answer(&call, |client| {
                    let request = client.request(method.clone(), &url).header(TOKEN, token);
                    body.into_iter().fold(request, |request, body| request.json(body))
                })
                .await
        };
        let token = self.session().token.clone();
        let mut answer = send(token).await?;
        if answer.status == StatusCode::UNAUTHORIZED {
            let (session, ..) = session(&self.http, &self.credentials).await?;
            let token = session.token.clone();
            *self.session() = session;
            answer = send(token).await?;
        }
        let HttpResponse { status, body, .. } = answer;
        if !status.is_success() {
            return Err(Refusal { call, status, text: body }.into());
        }
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&body).with_context(|| format!("unexpected answer to {call}: {body}"))
    }

    fn session(&self) -> std::sync::MutexGuard<'_, Session> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn status_of(error: &anyhow::Error) -> Option<StatusCode> {
    error.downcast_ref::<Refusal>().map(|refusal| refusal.status)
}

/// Gets a new token with the catalogue, and the IDs of project and user.
async fn session(http: &Http, credentials: &Credentials) -> anyhow::Result<(Session, String, String)> {
    #[derive(Deserialize)]
    struct Body {
        token: Token,
    }
    #[derive(Deserialize)]
    struct Token {
        project: Id,
        user: Id,
        catalog: Vec<Entry>,
    }
    #[derive(Deserialize)]
    struct Id {
        id: String,
    }
    #[derive(Deserialize)]
    struct Entry {
        #[serde(rename = "type")]
        kind: String,
        endpoints: Vec<Endpoint>,
    }
    #[derive(Deserialize)]
    struct Endpoint {
        interface: String,
        url: String,
    }
    let Credentials { auth_url, username, password, project_name } = credentials;
    let domain = json!({ "id": "default" });
    let order = json!({ "auth": {
        "identity": {
            "methods": ["password"],
            "password": { "user": { "name": username, "password": password, "domain": domain } },
        },
        "scope": { "project": { "name": project_name, "domain": domain } },
    }});
    let what = format!("the log-in as {username} at {auth_url}");
    let url = format!("{auth_url}/auth/tokens");
    let HttpResponse { status, headers, body } =
        http.answer(&what, |client| client.post(&url).json(&order)).await?;
    if !status.is_success() {
        return Err(Refusal { call: what, status, text: body }.into());
    }
    let token = headers.get("x-subject-token").and_then(|token| token.to_str().ok());
    let token = token.with_context(|| format!("{what} returned no token"))?.to_owned();
    let Body { token: Token { project, user, catalog } } =
        serde_json::from_str(&body).with_context(|| format!("unexpected answer to {what}"))?;
    let public = |entry: Entry| {
        let endpoint = entry.endpoints.into_iter().find(|it| it.interface == "public")?;
        Some((entry.kind, endpoint.url))
    };
    let endpoints = catalog.into_iter().filter_map(public).collect();
    Ok((Session { token, endpoints }, project.id, user.id))
}
