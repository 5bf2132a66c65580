//! The adapter's gRPC port, for whoever has a certificate authority and a token, or has not.

use std::path::PathBuf;

use adapter_client::{AdapterChannel, Connection, Security, Target};
use anyhow::{Context, ensure};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::pods::Pod;

/// Which service is looked at: all of them are served by the same replica.
const LOAD_BALANCERS: &str = "cloudadapter.v1alpha1.LoadBalancerService";

/// A way to one adapter's port.
#[derive(Clone, Debug)]
pub struct GrpcPort {
    channel: AdapterChannel,
}

impl GrpcPort {
    /// The port of `adapter`, for whoever trusts this authority, or speaks plaintext, and shows this token. Connects to nothing
    /// yet.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn open(adapter: &Pod, ca: Option<PathBuf>, token: Option<PathBuf>) -> anyhow::Result<Self> {
        Self::at(adapter.flag("--grpc-address")?, ca, token)
    }

    /// The same for any address.
    ///
    /// # Errors
    /// When it is none, or a file cannot be used.
    pub fn at(address: &str, ca: Option<PathBuf>, token: Option<PathBuf>) -> anyhow::Result<Self> {
        let scheme = if ca.is_some() { "https" } else { "http" };
        let target: Target = format!("{scheme}://{address}").parse()?;
        let server_name = ca.as_ref().map(|_| adapter_client::SERVER_NAME.to_owned());
        let security = Security { ca, server_name, token, ..Security::default() };
        let connection = Connection::new(target, &security);
        let connection = connection.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        Ok(Self { channel: connection.open()? })
    }

    /// What clients of the contract are made over.
    pub fn channel(&self) -> AdapterChannel {
        self.channel.clone()
    }

    /// Whether this replica serves the contract, as it tells clients that choose one.
    ///
    /// # Errors
    /// When it does not, or does not answer.
    pub async fn look_serving(&self) -> anyhow::Result<()> {
        let request = HealthCheckRequest { service: LOAD_BALANCERS.to_owned() };
        let answer = HealthClient::new(self.channel()).check(request).await.context("no answer")?;
        let status = answer.into_inner().status();
        ensure!(status == ServingStatus::Serving, "it is {status:?}");
        Ok(())
    }
}
