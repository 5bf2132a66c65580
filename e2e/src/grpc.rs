//! Clients of the adapter's gRPC port, with or without a certificate authority and a token.

use std::path::PathBuf;

use adapter_client::{AdapterChannel, ChannelSecurity, Connection, Target};
use anyhow::{Context, ensure};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::pods::Pod;

/// The service whose health is checked. A replica serves either all services or none.
const LOAD_BALANCERS: &str = "cloudadapter.v1alpha1.LoadBalancerService";

/// A connection to the port of an adapter.
#[derive(Clone, Debug)]
pub struct GrpcPort {
    channel: AdapterChannel,
}

impl GrpcPort {
    /// Opens the port of `adapter` for a client with this token and this certificate authority. Without an authority, the client uses
    /// plaintext. Does not connect yet.
    pub fn open(adapter: &Pod, ca: Option<PathBuf>, token: Option<PathBuf>) -> anyhow::Result<Self> {
        Self::at(adapter.flag("--grpc-address")?, ca, token)
    }

    /// Same as [`Self::open`], for any address.
    pub fn at(address: &str, ca: Option<PathBuf>, token: Option<PathBuf>) -> anyhow::Result<Self> {
        let scheme = if ca.is_some() { "https" } else { "http" };
        let target: Target = format!("{scheme}://{address}").parse()?;
        let server_name = ca.as_ref().map(|_| adapter_client::SERVER_NAME.to_owned());
        let security = ChannelSecurity { ca, server_name, token, ..ChannelSecurity::default() };
        let connection = Connection::new(target, &security);
        let connection = connection.map_err(|faults| anyhow::anyhow!("{faults:?}"))?;
        Ok(Self { channel: connection.open()? })
    }

    /// The channel for clients of the contract.
    pub fn channel(&self) -> AdapterChannel {
        self.channel.clone()
    }

    /// Checks that the health service of the replica reports SERVING.
    pub async fn look_serving(&self) -> anyhow::Result<()> {
        let request = HealthCheckRequest { service: LOAD_BALANCERS.to_owned() };
        let answer = HealthClient::new(self.channel()).check(request).await.context(
            "the health \
        service did not answer",
        )?;
        let status = answer.into_inner().status();
        ensure!(status == ServingStatus::Serving, "the health status is {status:?}");
        Ok(())
    }
}
