//! Metadata of images: names, labels, times.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use jiff::Timestamp;

use crate::git;

/// An image, named after its only program.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    pub(crate) description: &'static str,
}

/// The command-line client. Users run it directly, and `helm test` runs it as a pod.
const CLOUDCTL: Image = Image {
    name: "cloudctl",
    package: "cloudctl",
    description: "Shows what the controllers and the adapter do, for users and scripts: status, \
                  explanations, plans, and orphans",
};

/// The images that the chart runs, and the image of the simulated cloud, with which users try the chart.
pub(crate) const IMAGES: [Image; 7] = [
    Image {
        name: "node-controller",
        package: "node-controller",
        description: "Initialises Kubernetes nodes from the cloud, keeps them in sync, and deletes \
                      those whose instances are gone",
    },
    Image {
        name: "service-controller",
        package: "service-controller",
        description: "Creates the load balancers of Services of type LoadBalancer, through a cloud adapter",
    },
    Image {
        name: "route-controller",
        package: "route-controller",
        description: "Creates routes to the pods of each node in the cloud, and sets the nodes' condition accordingly",
    },
    Image {
        name: "adapter-openstack",
        package: "adapter-openstack",
        description: "The adapter for OpenStack: implements the cloud contract with Keystone, Nova, \
                      Neutron and Octavia",
    },
    Image { name: "adapter-sim", package: "adapter-sim", description: "The adapter for the simulated cloud" },
    Image {
        name: "simcloud",
        package: "adapter-sim",
        description: "The simulated cloud: a small cloud with an HTTP API, for tests and demos",
    },
    CLOUDCTL,
];

/// Programs that users run directly; a release has them in addition to the images.
pub(crate) const PROGRAMS: [Image; 2] = [
    CLOUDCTL,
    Image {
        name: "adapter-conformance",
        package: "adapter-conformance",
        description: "Tests any cloud adapter, in any language, against the contract: black box, vendor proxy, process faults",
    },
];

/// Metadata that all images of one build share.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) registry: String,
    pub(crate) tag: String,
    pub(crate) source: Option<String>,
    pub(crate) revision: String,
    pub(crate) created: Timestamp,
}

/// Suffix of the revision if there are uncommitted changes.
pub(crate) const DIRTY: &str = "-dirty";

/// Reads the metadata from git.
pub(crate) fn of(
    registry: &str,
    tag: &str,
    source: Option<&str>,
    created: Option<i64>,
) -> anyhow::Result<About> {
    named(registry, tag)?;
    let mut revision = git::output(["rev-parse", "HEAD"])?;
    if !git::output(["status", "--porcelain"])?.is_empty() {
        revision.push_str(DIRTY);
    }
    let created = match created {
        Some(created) => created,
        None => {
            git::output(["log", "-1", "--format=%ct"])?.parse().context("git prints no time of the commit")?
        }
    };
    Ok(About {
        registry: registry.trim_end_matches('/').to_owned(),
        tag: tag.to_owned(),
        source: source.map(str::to_owned),
        revision,
        created: time(created)?,
    })
}

/// Labels that do not depend on the commit, so that images with identical programs are identical.
pub(crate) fn for_tests(registry: &str) -> About {
    About {
        registry: registry.to_owned(),
        tag: env!("CARGO_PKG_VERSION").to_owned(),
        source: None,
        revision: "for-tests".to_owned(),
        created: Timestamp::UNIX_EPOCH,
    }
}

fn time(seconds: i64) -> anyhow::Result<Timestamp> {
    let fix = || {
        format!(
            "invalid creation time {seconds} (seconds since 1970); correct --created or SOURCE_DATE_EPOCH"
        )
    };
    Timestamp::from_second(seconds).with_context(fix)
}

/// Validates a registry and a tag as parts of an image's name.
fn named(registry: &str, tag: &str) -> anyhow::Result<()> {
    let fits = |text: &str, more: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    if tag.is_empty() || tag.len() > 128 || tag.starts_with(['.', '-']) || !fits(tag, "_.-") {
        bail!("invalid --tag {tag:?}: use letters, digits, `_`, `.` and `-`");
    }
    let path = registry.trim_end_matches('/').split('/').skip(1);
    let component = |part: &str| {
        let lower = part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "_.-".contains(c));
        lower && !part.is_empty() && !part.starts_with(['_', '.', '-']) && !part.ends_with(['_', '.', '-'])
    };
    if registry.contains("://") || !fits(registry, "_.-:/[]") || !path.into_iter().all(component) {
        bail!(
            "invalid --registry {registry:?}: expected HOST[:PORT][/PATH], without https://, with \
             the path in lower case"
        );
    }
    Ok(())
}

impl About {
    /// The image's name in the chart.
    pub(crate) fn name(&self, image: &Image) -> String {
        let slash = if self.registry.is_empty() { "" } else { "/" };
        format!("{}{slash}{}:{}", self.registry, image.name, self.tag)
    }

    /// The name under which containerd stores the image and the kubelet looks it up. This name always has a host.
    pub(crate) fn whole_name(&self, image: &Image) -> String {
        let name = self.name(image);
        let host = |first: &str| first.contains(['.', ':']) || first == "localhost";
        match name.split_once('/') {
            Some(("docker.io" | "index.docker.io", rest)) if !rest.contains('/') => {
                format!("docker.io/library/{rest}")
            }
            Some(("index.docker.io", rest)) => format!("docker.io/{rest}"),
            Some((first, _)) if host(first) => name,
            Some(_) => format!("docker.io/{name}"),
            None => format!("docker.io/library/{name}"),
        }
    }

    pub(crate) fn labels(&self, image: &Image) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::new();
        let mut say = |key: &str, value: &str| {
            labels.insert(format!("org.opencontainers.image.{key}"), value.to_owned());
        };
        say("title", image.name);
        say("description", image.description);
        say("version", &self.tag);
        say("revision", &self.revision);
        say("licenses", "Apache-2.0");
        say("created", &self.created.to_string());
        if let Some(source) = &self.source {
            say("source", source);
        }
        labels
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{About, IMAGES, named, time};
    use crate::cargo;

    pub(crate) fn about(registry: &str) -> About {
        About {
            registry: registry.to_owned(),
            tag: "0.1.0".to_owned(),
            source: None,
            revision: "4b1f3c3".to_owned(),
            created: time(1_700_000_000).unwrap(),
        }
    }

    #[test]
    fn names_for_containerd_have_a_host() {
        for (registry, name, whole) in [
            ("", "simcloud:0.1.0", "docker.io/library/simcloud:0.1.0"),
            ("acme", "acme/simcloud:0.1.0", "docker.io/acme/simcloud:0.1.0"),
            ("localhost", "localhost/simcloud:0.1.0", "localhost/simcloud:0.1.0"),
            ("r.example/a", "r.example/a/simcloud:0.1.0", "r.example/a/simcloud:0.1.0"),
            ("r:5000", "r:5000/simcloud:0.1.0", "r:5000/simcloud:0.1.0"),
            ("docker.io", "docker.io/simcloud:0.1.0", "docker.io/library/simcloud:0.1.0"),
            ("index.docker.io/a", "index.docker.io/a/simcloud:0.1.0", "docker.io/a/simcloud:0.1.0"),
        ] {
            let (about, simcloud) = (about(registry), &IMAGES[5]);
            assert_eq!((about.name(simcloud).as_str(), about.whole_name(simcloud).as_str()), (name, whole));
        }
    }

    #[test]
    fn creation_time_has_the_format_of_the_specification() {
        let mut about = about("");
        let labels = about.labels(&IMAGES[5]);
        assert_eq!(labels["org.opencontainers.image.created"], "2023-11-14T22:13:20Z");
        assert_eq!(labels["org.opencontainers.image.title"], "simcloud");
        assert!(!labels.contains_key("org.opencontainers.image.source"));
        about.source = Some("https://git.example/x".to_owned());
        assert_eq!(about.labels(&IMAGES[5])["org.opencontainers.image.source"], "https://git.example/x");
    }

    #[test]
    fn invalid_arguments_are_reported_with_a_fix() {
        assert!(time(i64::MAX).unwrap_err().to_string().contains("SOURCE_DATE_EPOCH"));
        assert!(named("", "a b").unwrap_err().to_string().contains("--tag \"a b\""));
        assert!(named("https://r.example", "1").unwrap_err().to_string().contains("without https://"));
        for registry in ["r.example/Acme", "r.example/a//b", "r.example/-a"] {
            assert!(named(registry, "1").unwrap_err().to_string().contains("--registry"), "{registry}");
        }
        for registry in ["", "localhost", "r.example:5000/a", "[::1]:5000/a/b-c"] {
            named(registry, "0.1.0-rc.1").unwrap();
        }
    }

    #[test]
    fn the_chart_runs_these_images_by_this_tag() {
        let chart = cargo::root().join("helm").join("cloud-controllers");
        let yaml = std::fs::read_to_string(chart.join("Chart.yaml")).unwrap();
        assert!(yaml.contains(&format!("\nappVersion: {}\n", env!("CARGO_PKG_VERSION"))), "{yaml}");
        for image in IMAGES.iter().filter(|image| image.name.ends_with("-controller")) {
            let file = chart.join("templates").join(format!("{}.yaml", image.name));
            let template = std::fs::read_to_string(file).unwrap();
            assert!(template.contains(&format!("\"component\" \"{}\"", image.name)), "{template}");
        }
    }

    #[test]
    fn descriptions_match_the_packages() {
        for image in IMAGES.iter().filter(|image| image.package != "adapter-sim") {
            let folder = image.package.replace("adapter-", "adapters/");
            let toml = std::fs::read_to_string(cargo::root().join(folder).join("Cargo.toml")).unwrap();
            assert!(toml.contains(&format!("description = \"{}\"", image.description)), "{}", image.name);
        }
    }
}
