//! The system under test in a scenario: control plane, cloud, chart, and the processes that the chart describes.

use serde_json::Value;

use crate::control_plane::ControlPlane;
use crate::helm::{Release, Values};
use crate::pods::Pods;
use crate::simcloud::Simcloud;
use crate::{Tools, seconds};

/// A cluster with the installed chart and its own cloud.
#[derive(Debug)]
pub struct Cluster<Cloud = Simcloud> {
    // Fields in the order in which they are dropped: clients before their servers.
    /// The adapter and the controllers.
    pub pods: Pods,
    /// The cloud, which outlives the adapter.
    pub cloud: Cloud,
    /// The installed chart.
    pub release: Release,
    /// etcd and the API server.
    pub control_plane: ControlPlane,
}

impl Cluster {
    /// Starts everything and waits until it is ready.
    pub async fn start(tools: &Tools) -> anyhow::Result<Self> {
        let mut this = Self::install(tools, |_| ()).await?;
        this.pods.start()?;
        this.pods.wait_ready(seconds(30)).await?;
        Ok(this)
    }

    /// Takes a control plane, starts a cloud and installs the chart, with values changed by `change`. Starts no pods.
    pub async fn install(tools: &Tools, change: impl FnOnce(&mut Value)) -> anyhow::Result<Self> {
        Box::pin(Self::install_on(ControlPlane::shared(tools).await?, change)).await
    }

    /// Same as [`Self::install`], on this control plane.
    pub async fn install_on(
        control_plane: ControlPlane,
        change: impl FnOnce(&mut Value),
    ) -> anyhow::Result<Self> {
        let cloud = Simcloud::start(&control_plane).await?;
        let mut values = Values::new()?.simcloud(cloud.url()).render();
        change(&mut values);
        let release = Release::install(&control_plane, &values).await?;
        let pods = Pods::from_release(&control_plane, &release).await?;
        Ok(Self { pods, cloud, release, control_plane })
    }
}
