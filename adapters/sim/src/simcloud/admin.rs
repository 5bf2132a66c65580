//! The admin API under `/admin`, for tests that act as a user or as the vendor's operator. Its calls are not counted, and faults do not
//! affect them.

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::response::Response;
use axum::routing::{delete, get, patch, post, put};
use bytes::Bytes;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::call::parse;
use super::cloud::Cloud;
use super::error::ApiError;
use super::http::{bearer, plain};
use super::instances::NewInstances;
use super::model::ProvisioningStatus;
use super::settings::Settings;
use super::tokens::{Token, Tokens};
use super::{Moment, SharedCloud};

/// Default number of log entries in a response.
const LOG_DEFAULT: usize = 1000;

pub(super) fn router() -> Router<SharedCloud> {
    Router::new()
        .route("/admin/state", get(state))
        .route("/admin/settings", get(settings).patch(change_settings).delete(reset_settings))
        .route("/admin/tokens", put(change_tokens))
        .route("/admin/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/admin/faults/{id}", delete(remove_fault))
        .route("/admin/counts", get(counts))
        .route("/admin/counts/reset", post(reset_counts))
        .route("/admin/log", get(log))
        .route("/admin/instances", post(create_instances))
        .route("/admin/instances/{id}", patch(change_instance).delete(delete_instance))
        .route("/admin/load-balancers/{id}", patch(change_balancer).delete(delete_balancer))
}

type Context = (State<SharedCloud>, HeaderMap);

/// Executes an admin call. Requires a valid token, and applies the changes that are due before it calls `work`.
fn act(
    (State(cloud), headers): &Context,
    work: impl FnOnce(&mut Cloud, Moment) -> Result<Value, ApiError>,
) -> Response {
    let result = cloud.with(|cloud, now| {
        cloud.tokens.check(bearer(headers).as_deref())?;
        cloud.settle(now);
        work(cloud, now)
    });
    plain(cloud, result)
}

fn value(body: &impl Serialize) -> Result<Value, ApiError> {
    serde_json::to_value(body).map_err(|error| ApiError::invalid("body", error))
}

async fn state(context: Context) -> Response {
    act(&context, |cloud, _| {
        let exists = |id: &str| cloud.instances.exists(id);
        value(&json!({
            "project": cloud.project,
            "instances": cloud.instances.all(),
            "load_balancers": cloud.load_balancers.all(),
            "routes": cloud.routes.all(&exists),
        }))
    })
}

async fn settings(context: Context) -> Response {
    act(&context, |cloud, _| value(&cloud.settings))
}

async fn change_settings(context: Context, body: Bytes) -> Response {
    act(&context, |cloud, _| {
        cloud.settings = cloud.settings.patched(&parse(&body)?)?;
        value(&cloud.settings)
    })
}

async fn reset_settings(context: Context) -> Response {
    act(&context, |cloud, _| {
        cloud.settings = Settings::default();
        value(&cloud.settings)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTokens {
    tokens: Vec<Token>,
}

/// Replaces all tokens. The response contains no token.
async fn change_tokens(context: Context, body: Bytes) -> Response {
    act(&context, |cloud, _| {
        let NewTokens { tokens } = parse(&body)?;
        cloud.tokens = Tokens::these(tokens)?;
        Ok(json!({}))
    })
}

async fn faults(context: Context) -> Response {
    act(&context, |cloud, _| value(&json!({ "faults": cloud.faults.list() })))
}

async fn add_fault(context: Context, body: Bytes) -> Response {
    act(&context, |cloud, _| value(&cloud.faults.add(parse(&body)?)?))
}

async fn clear_faults(context: Context) -> Response {
    act(&context, |cloud, _| {
        cloud.faults.clear();
        Ok(json!({}))
    })
}

async fn remove_fault(context: Context, Path(id): Path<String>) -> Response {
    act(&context, |cloud, _| {
        cloud.faults.remove(&id)?;
        Ok(json!({}))
    })
}

async fn counts(context: Context) -> Response {
    act(&context, |cloud, _| value(&cloud.counts))
}

async fn reset_counts(context: Context) -> Response {
    act(&context, |cloud, _| {
        cloud.reset_counts();
        Ok(json!({}))
    })
}

#[derive(Deserialize)]
struct LogQuery {
    limit: Option<usize>,
}

async fn log(context: Context, Query(query): Query<LogQuery>) -> Response {
    act(&context, |cloud, _| {
        let entries: Vec<_> = cloud.log.tail(query.limit.unwrap_or(LOG_DEFAULT)).collect();
        value(&json!({ "requests": entries }))
    })
}

async fn create_instances(context: Context, body: Bytes) -> Response {
    act(&context, |cloud, now| {
        let order: NewInstances = parse(&body)?;
        let made = (cloud.wall(now), cloud.write(now));
        let instances = cloud.instances.create(&order, &cloud.project.region, made)?;
        value(&json!({ "instances": instances }))
    })
}

async fn change_instance(context: Context, Path(id): Path<String>, body: Bytes) -> Response {
    act(&context, |cloud, now| value(&cloud.instances.change(&id, parse(&body)?, cloud.write(now))?))
}

async fn delete_instance(context: Context, Path(id): Path<String>) -> Response {
    act(&context, |cloud, now| {
        let write = cloud.write(now);
        value(&cloud.instances.delete(&id, write)?)
    })
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BalancerChange {
    status: ProvisioningStatus,
    /// The ID of the only listener of the load balancer to which the request applies.
    listener: Option<String>,
}

async fn change_balancer(context: Context, Path(id): Path<String>, body: Bytes) -> Response {
    act(&context, |cloud, now| {
        let BalancerChange { status, listener } = parse(&body)?;
        let write = cloud.write(now);
        value(&match listener {
            None => cloud.load_balancers.force_status(&id, status, write)?,
            Some(listener) => cloud.load_balancers.force_listener_status(&id, &listener, status, write)?,
        })
    })
}

async fn delete_balancer(context: Context, Path(id): Path<String>) -> Response {
    act(&context, |cloud, now| {
        let write = cloud.write(now);
        cloud.load_balancers.force_delete(&id, write)?;
        Ok(json!({}))
    })
}
