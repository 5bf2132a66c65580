//! The programs: their names, versions, and the Go packages that they are built from.

use std::fmt;
use std::time::Duration;

use crate::version::Version;

/// One of the programs that the end-to-end tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// The store of the API server.
    Etcd,
    /// The Kubernetes API server.
    KubeApiserver,
    /// The command-line client; the RBAC tests ask it what an identity may do.
    Kubectl,
    /// Installs the chart.
    Helm,
    /// Makes what the objects of a whole cluster ask for.
    KubeControllerManager,
    /// Gives pods their node.
    KubeScheduler,
    /// Runs the pods of a node.
    Kubelet,
    /// Makes a node forward what is sent to Services.
    KubeProxy,
    /// Runs the containers of a node.
    Containerd,
    /// What containerd starts for each pod.
    ContainerdShim,
    /// Talks to containerd.
    Ctr,
}

impl Tool {
    /// What a control plane for tests is made of, in the order in which they are looked for.
    pub const ALL: [Self; 4] = [Self::Etcd, Self::KubeApiserver, Self::Kubectl, Self::Helm];

    /// What a cluster with nodes that run pods is made of, in the order in which they are looked for.
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
        }
    }

    /// The version that is built here. Found ones must agree in major and minor. The same as in `<module>/go.mod`,
    /// which a test compares.
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
        }
    }

    /// The folder, beside this crate's `src`, of the Go module that pins it.
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
        }
    }

    /// The Go package of its `main` function.
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
        }
    }

    /// What the linker is told. The version is set here because `go build` sets it for none of them but etcd.
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
        };
        variables.iter().fold("-s -w".to_owned(), |flags, variable| format!("{flags} -X {variable}"))
    }

    /// How to ask it for its version.
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
        }
    }

    /// How long a cold build takes on two cores, measured, with the modules already downloaded.
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
        })
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
