//! Runs a pod that ends by itself, such as the pod of `helm test`. The program of the pod's container runs here, and the result is written
//! to the pod's status, as by a kubelet.

use std::process::Output;

use anyhow::Context;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::process::Command;

use super::container::{self, Ports, Surroundings};
use crate::pod_ip::pod_ip;

use super::{binaries, identity, volumes};
use crate::control_plane::ControlPlane;

/// Runs the pod until it ends, with these arguments after its own.
pub async fn run_pod(
    control_plane: &ControlPlane,
    namespace: &str,
    name: &str,
    more: &[String],
) -> anyhow::Result<Output> {
    let client = control_plane.client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let mut spec = pods.get(name).await?.spec.context("spec is missing")?;
    without_token(&mut spec);
    let dir = control_plane.dir().join("pods").join(name);
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let surroundings = Surroundings {
        pod: name.to_owned(),
        namespace: namespace.to_owned(),
        volumes: volumes::materialise(&client, namespace, &spec, &dir).await?.volumes,
        ip: pod_ip()?,
        ports: Ports::default(),
    };
    let container = container::resolve(&spec, &surroundings)?;
    let identity = identity::of(control_plane, namespace, &spec, &dir).await?;
    let mut command = Command::new(binaries()?.join(&container.program));
    command.args(&container.args).args(more).envs(&container.env).envs(&identity.env).kill_on_drop(true);
    let ended = command.output().await.with_context(|| format!("cannot run {}", container.program))?;
    let phase = if ended.status.success() { "Succeeded" } else { "Failed" };
    let status = Patch::Merge(json!({ "status": { "phase": phase } }));
    pods.patch_status(name, &PatchParams::default(), &status).await.context("cannot write the status")?;
    Ok(ended)
}

/// Removes the volume with the ServiceAccount's files, which the API server adds to the pod. A kubeconfig replaces these files here.
fn without_token(spec: &mut PodSpec) {
    const VOLUME: &str = "kube-api-access-";
    spec.volumes.iter_mut().for_each(|volumes| volumes.retain(|it| !it.name.starts_with(VOLUME)));
    for container in &mut spec.containers {
        let mounts = container.volume_mounts.iter_mut();
        mounts.for_each(|mounts| mounts.retain(|it| !it.name.starts_with(VOLUME)));
    }
}
