//! An HTTP hop between the driver and the vendor. It sends additional requests.

use std::{net::SocketAddr, sync::Arc};

use anyhow::Context as _;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::Fault;

#[derive(Debug)]
pub(crate) struct Hop {
    fault: Fault,
    cloud: String,
    client: reqwest::Client,
}

/// A request that the hop can send several times.
struct Call {
    method: Method,
    path: String,
    headers: http::HeaderMap,
    body: Bytes,
}

impl Hop {
    /// Starts a hop that listens on a free loopback port until the process ends.
    #[expect(clippy::disallowed_methods, reason = "a call without a budget is the injected fault")]
    pub(crate) async fn start(fault: Fault, cloud: Uri) -> anyhow::Result<Uri> {
        let client = reqwest::Client::builder().no_proxy().retry(reqwest::retry::never()).build()?;
        let cloud = cloud.to_string().trim_end_matches('/').to_owned();
        let hop = Arc::new(Self { fault, cloud, client });
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let listener = listener.context("cannot listen on a loopback port")?;
        let here = format!("http://{}", listener.local_addr()?).parse()?;
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let hop = Arc::clone(&hop);
                let service = service_fn(move |request| Arc::clone(&hop).answer(request));
                tasks.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Ok(here)
    }

    /// An error closes the connection, as if the vendor had closed it.
    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> anyhow::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let path = head.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let mut headers = head.headers;
        for hop_by_hop in [header::HOST, header::CONTENT_LENGTH, header::CONNECTION] {
            headers.remove(hop_by_hop);
        }
        let call = Call { method: head.method, path, headers, body: body.collect().await?.to_bytes() };
        match self.fault {
            Fault::RetriesCreates if call.method == Method::POST && call.path == "/v1/load-balancers" => {
                self.create(call).await
            }
            Fault::FansOutThrottledBatch if call.path.starts_with("/v1/instances?ids=") => {
                self.look_up(call).await
            }
            _ => self.send(&call).await,
        }
    }

    async fn create(&self, mut call: Call) -> anyhow::Result<Response<Full<Bytes>>> {
        let mut wanted: Value = serde_json::from_slice(&call.body)?;
        if let Some(wanted) = wanted.as_object_mut() {
            wanted.remove("client_token");
        }
        call.body = serde_json::to_vec(&wanted)?.into();
        match self.send(&call).await {
            Ok(answer) if !answer.status().is_server_error() => Ok(answer),
            Ok(_) | Err(_) => self.send(&call).await,
        }
    }

    async fn look_up(&self, call: Call) -> anyhow::Result<Response<Full<Bytes>>> {
        let whole = self.send(&call).await?;
        if whole.status() != StatusCode::TOO_MANY_REQUESTS {
            return Ok(whole);
        }
        let (mut instances, mut missing) = (Vec::new(), Vec::new());
        let ids = call.path.trim_start_matches("/v1/instances?ids=").to_owned();
        for id in ids.split(',') {
            let path = format!("/v1/instances?ids={id}");
            let headers = call.headers.clone();
            let single = Call { method: Method::GET, path, headers, body: Bytes::new() };
            let answer = self.send(&single).await?;
            if !answer.status().is_success() {
                return Ok(whole);
            }
            let mut found: Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
            let mut take = |field| found.get_mut(field).map(Value::take);
            instances
                .extend(take("instances").as_ref().and_then(Value::as_array).into_iter().flatten().cloned());
            missing.extend(take("missing").as_ref().and_then(Value::as_array).into_iter().flatten().cloned());
        }
        let all = serde_json::json!({ "instances": instances, "missing": missing });
        Ok(Response::new(serde_json::to_vec(&all)?.into()))
    }

    async fn send(&self, call: &Call) -> anyhow::Result<Response<Full<Bytes>>> {
        let url = format!("{}{}", self.cloud, call.path);
        let request = self.client.request(call.method.clone(), url).headers(call.headers.clone());
        let answer = request.body(call.body.clone()).send().await?;
        let (status, mut headers) = (answer.status(), answer.headers().clone());
        for hop_by_hop in [header::CONTENT_LENGTH, header::TRANSFER_ENCODING, header::CONNECTION] {
            headers.remove(hop_by_hop);
        }
        let mut response = Response::new(Full::new(answer.bytes().await?));
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}
