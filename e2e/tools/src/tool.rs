//! The programs: their names, versions, and Go packages.

use std::fmt;
use std::time::Duration;

use crate::version::Version;

/// A program that the end-to-end tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// etcd.
    Etcd,
    /// The Kubernetes API server.
    KubeApiserver,
    /// kubectl. The RBAC tests use it to list the rights of an identity.
    Kubectl,
    /// Helm, which installs the chart.
    Helm,
    /// kube-controller-manager.
    KubeControllerManager,
    /// kube-scheduler.
    KubeScheduler,
    /// The kubelet.
    Kubelet,
    /// kube-proxy.
    KubeProxy,
    /// containerd.
    Containerd,
    /// The shim that containerd starts for each pod.
    ContainerdShim,
    /// ctr, the client of containerd.
    Ctr,
    /// cosign, which signs releases and verifies them.
    Cosign,
    /// crane, which copies images to registries, and serves a registry for tests.
    Crane,
}

impl Tool {
    /// The programs of a control plane for tests, in the order of the search.
    pub const ALL: [Self; 4] = [Self::Etcd, Self::KubeApiserver, Self::Kubectl, Self::Helm];

    /// The programs of a cluster with nodes that run pods, in the order of the search.
    pub const CLUSTER: [Self; 10] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::Kubectl,
        Self::KubeControllerManager,
        Self::KubeScheduler,
        Self::Kubelet,
        Self::KubeProxy,
        Self::Containerd,
        Self::ContainerdShim,
        Self::Ctr,
    ];

    /// The name of the executable file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
            Self::Cosign => "cosign",
            Self::Crane => "crane",
        }
    }

    /// The version to build. A program that is found must have the same major and minor version. A test compares this version with
    /// `<module>/go.mod`.
    pub fn version(self) -> Version {
        match self {
            Self::Etcd => Version::new(3, 6, 8),
            Self::KubeApiserver
            | Self::Kubectl
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy => Version::new(1, 36, 3),
            Self::Helm => Version::new(4, 3, 1),
            Self::Containerd | Self::ContainerdShim | Self::Ctr => Version::new(2, 4, 2),
            Self::Cosign => Version::new(3, 1, 3),
            Self::Crane => Version::new(0, 22, 1),
        }
    }

    /// The folder of the Go module that pins the version; it is next to this crate's `src`.
    pub(crate) fn module(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver
            | Self::Kubectl
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy => "kubernetes",
            Self::Helm => "helm",
            Self::Containerd | Self::ContainerdShim | Self::Ctr => "containerd",
            Self::Cosign => "cosign",
            Self::Crane => "crane",
        }
    }

    pub(crate) fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::KubeScheduler => "k8s.io/kubernetes/cmd/kube-scheduler",
            Self::Kubelet => "k8s.io/kubernetes/cmd/kubelet",
            Self::KubeProxy => "k8s.io/kubernetes/cmd/kube-proxy",
            Self::Containerd => "github.com/containerd/containerd/v2/cmd/containerd",
            Self::ContainerdShim => "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
            Self::Ctr => "github.com/containerd/containerd/v2/cmd/ctr",
            Self::Cosign => "github.com/sigstore/cosign/v3/cmd/cosign",
            Self::Crane => "github.com/google/go-containerregistry/cmd/crane",
        }
    }

    /// The linker flags that set the program's version. etcd needs none.
    pub(crate) fn ldflags(self) -> String {
        let version = self.version();
        let variables = match self {
            Self::Etcd => Vec::new(),
            Self::KubeApiserver
            | Self::Kubectl
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy => vec![
                format!("k8s.io/component-base/version.gitVersion={version}"),
                format!("k8s.io/component-base/version.gitMajor={}", version.major),
                format!("k8s.io/component-base/version.gitMinor={}", version.minor),
            ],
            Self::Helm => vec![format!("helm.sh/helm/v4/internal/version.version={version}")],
            Self::Containerd | Self::ContainerdShim | Self::Ctr => {
                vec![format!("github.com/containerd/containerd/v2/version.Version={version}")]
            }
            Self::Cosign => vec![format!("sigs.k8s.io/release-utils/version.gitVersion={version}")],
            Self::Crane => {
                vec![format!("github.com/google/go-containerregistry/cmd/crane/cmd.Version={version}")]
            }
        };
        variables.iter().fold("-s -w".to_owned(), |flags, variable| format!("{flags} -X {variable}"))
    }

    pub(crate) fn version_args(self) -> &'static [&'static str] {
        match self {
            Self::Etcd
            | Self::KubeApiserver
            | Self::KubeControllerManager
            | Self::KubeScheduler
            | Self::Kubelet
            | Self::KubeProxy
            | Self::Containerd
            | Self::Ctr => &["--version"],
            Self::ContainerdShim => &["-v"],
            Self::Kubectl => &["version", "--client"],
            Self::Helm => &["version", "--short"],
            Self::Cosign | Self::Crane => &["version"],
        }
    }

    /// The measured time of a build without a cache on two cores, with the modules already downloaded.
    pub(crate) fn build_time(self) -> Duration {
        Duration::from_secs(match self {
            Self::Etcd => 30,
            Self::KubeApiserver => 180,
            Self::Kubectl => 35,
            Self::Helm => 145,
            Self::KubeControllerManager => 40,
            Self::KubeScheduler => 30,
            Self::Kubelet | Self::Containerd => 60,
            Self::KubeProxy => 6,
            Self::ContainerdShim | Self::Ctr => 5,
            Self::Cosign => 150,
            Self::Crane => 20,
        })
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
