//! `/status`, `/explain` and `/plan` over HTTP, as JSON.

use axum::{
    Json, Router,
    extract::{Query, State, rejection::QueryRejection},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use serde::{Deserialize, Serialize};

use super::{Explain, Unexplained};

#[derive(Debug, Deserialize)]
struct Asked {
    key: Option<String>,
}

/// The key after which the page of plans begins.
#[derive(Debug, Deserialize)]
struct Page {
    after: Option<String>,
}

pub(crate) fn routes(explain: Explain) -> Router {
    let routes = Router::new().route("/status", get(status)).route("/explain", get(explained));
    routes.route("/plan", get(planned)).with_state(explain)
}

async fn status(State(explain): State<Explain>) -> Response {
    match explain.status() {
        Ok(status) => json(StatusCode::OK, &status),
        Err(error) => refused(&error),
    }
}

async fn explained(State(explain): State<Explain>, asked: Result<Query<Asked>, QueryRejection>) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let Some(key) = asked.key else {
        return match explain.all() {
            Ok(all) => json(StatusCode::OK, &all),
            Err(error) => refused(&error),
        };
    };
    match explain.one(&key) {
        Ok(one) if one.known => json(StatusCode::OK, &one),
        Ok(unknown) => json(StatusCode::NOT_FOUND, &unknown),
        Err(error) => refused(&error),
    }
}

async fn planned(State(explain): State<Explain>, asked: Result<Query<Page>, QueryRejection>) -> Response {
    let after = match asked {
        Ok(Query(page)) => page.after.unwrap_or_default(),
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    match explain.plan(&after).await {
        Ok(plans) => json(StatusCode::OK, &plans),
        Err(error) => refused(&error),
    }
}

fn json(status: StatusCode, page: &impl Serialize) -> Response {
    // Clients must not cache the answer, since it is valid at this moment only.
    (status, [(header::CACHE_CONTROL, "no-store")], Json(page)).into_response()
}

fn refused(error: &Unexplained) -> Response {
    let status = match error {
        Unexplained::Form(_) => StatusCode::BAD_REQUEST,
        Unexplained::NotStarted => StatusCode::SERVICE_UNAVAILABLE,
        Unexplained::Unknown => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n")).into_response()
}
