//! The flags that only `adapter-sim` has, and the driver built from them.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use clap::Args;
use cloud_adapter::WrongUsage;
use http::Uri;
use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{error, info};

use crate::{
    driver::{self, ClientTokens, Settings, SimDriver},
    simcloud::{Cloud, SharedCloud, model::Project, serve},
};

/// The simulated cloud to use.
#[derive(Clone, Debug, Args)]
pub struct SimOptions {
    /// Base URL of a separate simcloud [default: run a simcloud inside this process; it ends with the process]
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    pub(crate) endpoint: Option<Uri>,
    /// File with the simcloud's bearer token; read again when it changes. A simcloud inside this process also requires this token
    #[arg(long, value_name = "PATH")]
    token_file: Option<PathBuf>,
    /// Region that the simcloud serves; part of all provider IDs
    #[arg(long, default_value = "sim-1", value_parser = region)]
    region: String,
    /// Maximum lag of the simcloud's reads behind its writes, in milliseconds
    #[arg(long, default_value_t = 2000, value_name = "MS")]
    consistency_horizon_ms: u64,
    /// Maximum time that the simcloud may work on a create whose response was lost, in milliseconds [default: twice the consistency
    /// horizon]
    #[arg(long, value_name = "MS")]
    create_horizon_ms: Option<u64>,
    /// Whether each create has a client token
    #[arg(long, value_enum, default_value_t)]
    pub(crate) client_tokens: ClientTokens,
}

impl SimOptions {
    /// Creates the driver. Without an endpoint, starts a cloud inside this process. The cloud ends with the process.
    pub async fn driver(self) -> anyhow::Result<SimDriver> {
        let token = self.token_file.as_deref().map(token).transpose()?;
        let endpoint = self.endpoint().await?;
        let consistency_horizon = Duration::from_millis(self.consistency_horizon_ms);
        let settings = Settings {
            endpoint,
            token: token.map(Into::into),
            region: self.region,
            consistency_horizon,
            create_horizon: self.create_horizon_ms.map_or(consistency_horizon * 2, Duration::from_millis),
            client_tokens: self.client_tokens,
        };
        let driver = SimDriver::new(settings).with_context(|| {
            WrongUsage(
                "--token-file: the token has characters that are not allowed in an HTTP header".to_owned(),
            )
        })?;
        let driver = if self.endpoint.is_none() { driver.built_in() } else { driver };
        Ok(match self.token_file {
            Some(path) => driver.following(path),
            None => driver,
        })
    }
}

impl SimOptions {
    /// If no endpoint is set, starts a cloud inside this process.
    pub(crate) async fn endpoint(&self) -> anyhow::Result<Uri> {
        match &self.endpoint {
            Some(endpoint) => Ok(endpoint.clone()),
            None => {
                let token = self.token_file.as_deref().map(token).transpose()?;
                embed(&self.region, token.as_deref()).await
            }
        }
    }
}

fn token(path: &Path) -> anyhow::Result<String> {
    let fault = |what: &str| WrongUsage(format!("--token-file {}{what}", path.display()));
    let text = fs::read_to_string(path).with_context(|| fault(""))?;
    let token = driver::token(&text);
    Ok(token.with_context(|| fault(": is empty: write the simcloud's bearer token into it"))?.to_owned())
}

/// Starts a cloud on any free loopback port.
#[expect(clippy::disallowed_methods, reason = "creation times are wall-clock times")]
async fn embed(region: &str, token: Option<&str>) -> anyhow::Result<Uri> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))
        .await
        .context("cannot listen on a loopback port for the simulated cloud")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let project =
        Project { account: "sim".to_owned(), project: "demo".to_owned(), region: region.to_owned() };
    let mut cloud = Cloud::new(project).switched_on_at(jiff::Timestamp::now());
    if let Some(token) = token {
        cloud = cloud.with_token(token);
    }
    info!(endpoint, "Started a simulated cloud inside this process; it ends with the process");
    // The cloud's shutdown token is never cancelled, because an adapter that shuts down still makes calls.
    TaskTracker::new().spawn(async move {
        if let Err(error) = serve(listener, SharedCloud::new(cloud), CancellationToken::new()).await {
            error!(%error, "The simulated cloud stopped");
        }
    });
    Ok(endpoint.parse()?)
}

fn endpoint(text: &str) -> Result<Uri, String> {
    let right = "write it as http://127.0.0.1:9797";
    let uri: Uri = text.parse().map_err(|error| format!("{error}: {right}"))?;
    let scheme = uri.scheme_str();
    if !matches!(scheme, Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err(format!("not the address of an HTTP server: {right}"));
    }
    if uri.query().is_some() {
        return Err(format!("has a query: {right}"));
    }
    Ok(uri)
}

fn region(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        Ok(text.to_owned())
    } else {
        Err("must be letters, digits and dashes".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_flag_is_validated() {
        for good in ["http://127.0.0.1:9797", "https://cloud.example/base/", "http://[::1]:80"] {
            assert!(endpoint(good).is_ok(), "{good}");
        }
        for bad in ["127.0.0.1:9797", "cloud", "ftp://cloud", "http://cloud/?x=1", "", "http://"] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_missing_token_file_is_named_with_its_flag() {
        let error = token(Path::new("/nowhere/token")).expect_err("missing");
        assert!(format!("{error:#}").starts_with("--token-file /nowhere/token: "), "{error:#}");
    }
}
