//! Turns a Deployment into a process to run. All functions are pure: their inputs are objects that were read before.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{self as core, EnvVar, HTTPGetAction, PodSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::expand::expand;
use super::volumes::{Mounts, Volumes};

/// Default grace period of the kubelet.
const GRACE: i64 = 30;

/// The process of the pod's only container.
#[derive(Debug)]
pub(crate) struct Container {
    /// The name of the executable file, without its directory in the image.
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) grace: Duration,
    readiness: Option<Probe>,
}

#[derive(Debug)]
struct Probe {
    base: String,
    /// The URL of the same port on the loopback address, which a port-forward uses.
    near: String,
    url: String,
}

/// The values to which a container's fields refer.
#[derive(Debug)]
pub(crate) struct Surroundings {
    pub(crate) pod: String,
    pub(crate) namespace: String,
    pub(crate) volumes: Volumes,
    pub(crate) ip: IpAddr,
    pub(crate) ports: Ports,
}

/// The ports of a replica that replace those of its Deployment, because two replicas on one host cannot share ports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ports(BTreeMap<i32, u16>);

impl<const N: usize> From<[(i32, u16); N]> for Ports {
    fn from(ports: [(i32, u16); N]) -> Self {
        Self(ports.into())
    }
}

impl FromIterator<(i32, u16)> for Ports {
    fn from_iter<I: IntoIterator<Item = (i32, u16)>>(ports: I) -> Self {
        Self(ports.into_iter().collect())
    }
}

impl Ports {
    /// Returns the port that replaces this one.
    pub(crate) fn of(&self, port: i32) -> i32 {
        self.0.get(&port).map_or(port, |port| i32::from(*port))
    }

    /// Replaces the port at the end of an argument or a variable, such as `--grpc-address=0.0.0.0:8443`.
    fn moved(&self, text: &str) -> String {
        let Some((before, port)) = text.rsplit_once(':') else { return text.to_owned() };
        port.parse().map_or_else(|_| text.to_owned(), |port| format!("{before}:{}", self.of(port)))
    }
}

pub(crate) fn template(deployment: &Deployment) -> anyhow::Result<&PodSpec> {
    let spec = deployment.spec.as_ref().context("spec is missing")?;
    spec.template.spec.as_ref().context("spec.template.spec is missing")
}

/// Resolves all references of the pod's only container.
pub(crate) fn resolve(pod: &PodSpec, surroundings: &Surroundings) -> anyhow::Result<Container> {
    let [container] = pod.containers.as_slice() else {
        bail!("containers has {} items; only 1 is supported here", pod.containers.len());
    };
    ensure!(pod.init_containers.iter().flatten().next().is_none(), "initContainers are not supported here");
    ensure!(container.env_from.iter().flatten().next().is_none(), "envFrom is not supported here");

    let mounts = mounts(container, &surroundings.volumes)?;
    let local = |text: &str| mounts.point(&surroundings.ports.moved(text));
    let env = environment(pod, container, surroundings)?;
    let command = container.command.iter().flatten().map(|word| expand(word, &env)).collect::<Vec<_>>();
    let (program, first) = match command.split_first() {
        Some((program, args)) => (base_name(program), args),
        None => (image_name(container)?, [].as_slice()),
    };
    let args = container.args.iter().flatten().map(|arg| expand(arg, &env));
    Ok(Container {
        program,
        args: first.iter().cloned().chain(args).map(|arg| local(&arg)).collect(),
        env: env.iter().map(|(name, value)| (name.clone(), local(value))).collect(),
        grace: Duration::from_secs(
            pod.termination_grace_period_seconds.unwrap_or(GRACE).try_into().unwrap_or_default(),
        ),
        readiness: readiness(container, surroundings)?,
    })
}

impl Container {
    pub(crate) fn readiness(&self) -> anyhow::Result<&str> {
        self.readiness.as_ref().map(|probe| &*probe.url).context("readinessProbe.httpGet is missing")
    }

    /// The URL of another path on the same server.
    pub(crate) fn beside_readiness(&self, path: &str) -> anyhow::Result<String> {
        let probe = self.readiness.as_ref().context("readinessProbe.httpGet is missing")?;
        Ok(format!("{}{path}", probe.base))
    }

    /// The URL of another path on the same server through a port-forward.
    pub(crate) fn by_port_forward(&self, path: &str) -> anyhow::Result<String> {
        let probe = self.readiness.as_ref().context("readinessProbe.httpGet is missing")?;
        Ok(format!("{}{path}", probe.near))
    }
}

fn mounts(container: &core::Container, volumes: &Volumes) -> anyhow::Result<Mounts> {
    let mut found = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        ensure!(mount.sub_path.is_none(), "volumeMounts {}: subPath is not supported here", mount.name);
        let dir = volumes.get(&mount.name).with_context(|| format!("unknown volume {}", mount.name))?;
        found.push((mount.mount_path.trim_end_matches('/').to_owned(), dir.clone()));
    }
    Ok(Mounts::new(found))
}

/// Resolves the variables in their order, because later ones may refer to earlier ones.
fn environment(
    pod: &PodSpec,
    container: &core::Container,
    surroundings: &Surroundings,
) -> anyhow::Result<BTreeMap<String, String>> {
    let mut env = BTreeMap::from([("HOSTNAME".to_owned(), surroundings.pod.clone())]);
    for variable in container.env.iter().flatten() {
        let value = match field(variable)? {
            Some(path) => field_value(path, pod, surroundings)
                .with_context(|| format!("env {}: fieldRef {path} is not supported here", variable.name))?,
            None => expand(variable.value.as_deref().unwrap_or_default(), &env),
        };
        env.insert(variable.name.clone(), value);
    }
    Ok(env)
}

fn field(variable: &EnvVar) -> anyhow::Result<Option<&str>> {
    let Some(from) = &variable.value_from else { return Ok(None) };
    let reference = from.field_ref.as_ref();
    let reference =
        reference.with_context(|| format!("env {}: only fieldRef is supported here", variable.name))?;
    Ok(Some(&reference.field_path))
}

fn field_value(path: &str, pod: &PodSpec, surroundings: &Surroundings) -> Option<String> {
    Some(match path {
        "metadata.name" => surroundings.pod.clone(),
        "metadata.namespace" => surroundings.namespace.clone(),
        "spec.serviceAccountName" => pod.service_account_name.clone().unwrap_or_else(|| "default".to_owned()),
        "spec.nodeName" => "localhost".to_owned(),
        "status.podIP" | "status.hostIP" => surroundings.ip.to_string(),
        _ => return None,
    })
}

fn readiness(container: &core::Container, surroundings: &Surroundings) -> anyhow::Result<Option<Probe>> {
    let http = container.readiness_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
    http.map(|get| probe(get, container, surroundings)).transpose()
}

fn probe(
    get: &HTTPGetAction,
    container: &core::Container,
    surroundings: &Surroundings,
) -> anyhow::Result<Probe> {
    let port = match &get.port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            let port = ports.find(|port| port.name.as_ref() == Some(name));
            port.with_context(|| format!("readinessProbe: unknown port {name}"))?.container_port
        }
    };
    let loopback =
        if surroundings.ip.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
    let port = surroundings.ports.of(port).try_into()?;
    let [base, near] = [surroundings.ip, loopback].map(|ip| format!("http://{}", SocketAddr::new(ip, port)));
    Ok(Probe { url: format!("{base}{}", get.path.as_deref().unwrap_or("/")), base, near })
}

fn image_name(container: &core::Container) -> anyhow::Result<String> {
    let image = container.image.as_deref().context("the container has neither command nor image")?;
    let image = image.split('@').next().unwrap_or(image);
    let name = base_name(image);
    Ok(name.split(':').next().unwrap_or(&name).to_owned())
}

fn base_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests;
