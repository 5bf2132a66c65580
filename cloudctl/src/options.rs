//! The flags of all commands.

use std::{path::PathBuf, str::FromStr};

use clap::{Args, ValueEnum};
use telemetry::hint;

use crate::output::{Color, Format};

/// Default namespace of the chart.
const NAMESPACE: &str = "kube-system";

/// Flags of all commands.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Common")]
pub(crate) struct Common {
    /// Kubeconfig file for the API server [default: as for kubectl]
    #[arg(long, global = true, hide = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig [default: its current context]
    #[arg(long, global = true, hide = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Namespace of the Service that `explain` shows [default: that of the context]
    #[arg(long, short, global = true, hide = true, value_name = "NAME", value_parser = label)]
    pub(crate) namespace: Option<String>,
    /// Name of the Helm release, if there are several [default: the only one]
    #[arg(long, global = true, hide = true, value_name = "NAME", value_parser = label)]
    pub(crate) release: Option<String>,
    /// Namespace in which the chart is installed [default: kube-system, else the only one with a release]
    #[arg(long, global = true, hide = true, value_name = "NAME", value_parser = label)]
    pub(crate) release_namespace: Option<String>,
    /// Read the pages of a component at this URL instead of by port-forward, such as service-controller=http://10.0.0.1:10271. May be
    /// repeated, also for several replicas of a component
    #[arg(long, global = true, hide = true, value_name = "COMPONENT=URL")]
    pub(crate) url: Vec<PagesUrl>,
    /// Format of the report
    #[arg(long, short, global = true, hide = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub(crate) output: Format,
    /// When to use colours
    #[arg(long, global = true, hide = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: Color,
}

impl Common {
    pub(crate) fn release_namespace(&self) -> &str {
        self.release_namespace.as_deref().unwrap_or(NAMESPACE)
    }
}

/// Parses the name of a namespace or a release, a DNS label.
fn label(text: &str) -> Result<String, String> {
    let fine = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends = text.starts_with('-') || text.ends_with('-');
    if (1..=63).contains(&text.len()) && text.bytes().all(fine) && !ends {
        return Ok(text.to_owned());
    }
    Err("a name consists of at most 63 lower case letters, digits and dashes, without dashes at its ends"
        .to_owned())
}

/// A component of the release that serves pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Component {
    CloudAdapter,
    NodeController,
    RouteController,
    ServiceController,
}

impl Component {
    /// The controllers.
    pub(crate) const CONTROLLERS: [Self; 3] =
        [Self::NodeController, Self::RouteController, Self::ServiceController];

    /// Returns the name of the component, as in the label `app.kubernetes.io/component` and in the name of the Deployment.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::CloudAdapter => "cloud-adapter",
            Self::NodeController => "node-controller",
            Self::RouteController => "route-controller",
            Self::ServiceController => "service-controller",
        }
    }

    /// Returns the name of the component's ServiceAccount, which is also the prefix of its Leases.
    pub(crate) const fn lease(self) -> &'static str {
        match self {
            Self::CloudAdapter => "cloud-adapter",
            Self::NodeController => "cloud-node-controller",
            Self::RouteController => "cloud-route-controller",
            Self::ServiceController => "cloud-service-controller",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::value_variants().iter().copied().find(|it| it.name() == name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PagesUrl {
    pub(crate) component: Component,
    /// `HOST:PORT`.
    pub(crate) authority: String,
}

impl FromStr for PagesUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (component, url) = text.split_once('=').ok_or("invalid value: write COMPONENT=URL")?;
        let component = Component::named(component).ok_or_else(|| {
            let known: Vec<&str> = Component::value_variants().iter().map(|it| it.name()).collect();
            format!("unknown component '{component}'{}", hint(component, known))
        })?;
        let form = || "invalid URL: write http://HOST:PORT".to_owned();
        let rest = url.strip_prefix("http://").ok_or_else(|| {
            if url.starts_with("https://") {
                "pages are read over plain HTTP, at the port of --http-address: write http://HOST:PORT"
                    .to_owned()
            } else {
                form()
            }
        })?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let parsed: http::uri::Authority = authority.parse().map_err(|_error| form())?;
        parsed.port_u16().filter(|_| !parsed.host().is_empty()).ok_or_else(form)?;
        Ok(Self { component, authority: authority.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_component_and_a_url() {
        let url: PagesUrl = "cloud-adapter=http://[::1]:10273/".parse().expect("a URL");
        assert_eq!(url, PagesUrl { component: Component::CloudAdapter, authority: "[::1]:10273".to_owned() });
        for (text, wanted) in [
            ("http://10.0.0.1:1", "unknown component 'http://"),
            ("cloud-adapter", "COMPONENT=URL"),
            ("adapter=http://a:1", "node-controller, route-controller"),
            ("cloud-adapter=http://a", "http://HOST:PORT"),
            ("cloud-adapter=a:1", "http://HOST:PORT"),
            ("cloud-adapter=https://a:1", "plain HTTP"),
            ("cloud-adapter=http://a:1/status", "http://HOST:PORT"),
        ] {
            let refused = text.parse::<PagesUrl>().expect_err(text);
            assert!(refused.contains(wanted) || text.starts_with("http"), "{text}: {refused}");
        }
    }
}
