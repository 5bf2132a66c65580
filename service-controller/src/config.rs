//! Converts flags and environment variables into a validated [`Config`], and reports all errors at once.

use std::{ffi::OsString, time::Duration};

use clap::Parser;
use controller_core::config::{CommonArgs, CommonConfig, Faults, read};

use crate::{
    mirror::Reading,
    plan::{
        annotations::{add_default, settings::Defaults, template::Template, values},
        bounds::{Bounds, MEMBERS, Ports},
        compat::Compat,
        left_over::Orphans,
        service::Classes,
    },
};

/// Upper limit of `--concurrent-service-syncs`: more syncs than any cloud can handle.
const MOST_SYNCS: usize = 1000;
/// Upper limit of `--max-members-per-service`: more members than any cloud allows, so effectively no limit.
const MOST_MEMBERS: usize = 1_000_000_000;

/// End of the help. Lines have at most 76 characters, because clap wraps longer ones on a terminal, and a wrapped command fails when it is
/// copied.
const EXAMPLE: &str = "\
Example, outside of a cluster, with an adapter on this host:
  service-controller --kubeconfig admin.conf \\
    --adapter-endpoint http://127.0.0.1:8443 \\
    --cluster-id \"$(kubectl get namespace kube-system \\
      -o jsonpath='{.metadata.uid}')\"

Services of type LoadBalancer without a class get a load balancer; the
Events of a Service say what its load balancer waits for.

`service-controller self-test` creates such a Service, waits for its address
and deletes the Service; `self-test --help` lists the flags.";

/// Create and maintain load balancers for Services of type LoadBalancer, through a cloud adapter.
#[derive(Debug, Parser)]
#[command(name = "service-controller", version, next_help_heading = "Work", after_long_help = EXAMPLE)]
struct Args {
    /// Maximum number of Services that are synced at once. This flag does not limit the calls to the cloud; the adapter's budget does.
    #[arg(long, value_name = "N", default_value = "50", allow_negative_numbers = true)]
    concurrent_service_syncs: String,

    /// Default value of an annotation, by the annotation's name without the prefix, such as idle-timeout=5m. Applies to all Services
    /// without that annotation. Repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    service_default: Vec<String>,

    /// Comma-separated node ports that the annotation health-check.port may name in any Service (default 10256, the port of kube-proxy).
    ///
    /// A Service may also name its own node ports and its healthCheckNodePort; any other port is refused. The mode kube-proxy uses port
    /// 10256 regardless of this list.
    #[arg(long, value_name = "PORTS", default_value = "10256")]
    health_check_ports: String,

    /// Maximum number of members of a new load balancer, which are listeners times nodes (default 20000).
    ///
    /// A Service that would have more is refused. An existing load balancer still follows node changes while the Service's ports and
    /// node-selector stay the same or shrink.
    #[arg(long, value_name = "N", default_value = "20000", allow_negative_numbers = true)]
    max_members_per_service: String,

    /// Template for the names of load balancers in the cloud, such as {cluster}-{namespace}-{service}. Without it, the adapter chooses the
    /// names.
    ///
    /// {cluster} is --cluster-name, {namespace} and {service} are those of the Service, and {uid} is its UID: 31 digits without dashes, so
    /// that a{uid} is the name that Go cloud controller managers use. The template must have {uid}, or {namespace} and {service}; all other
    /// characters must be letters, digits, -, _ and . (with _ or . between them, names are unique). Names do not decide ownership: an
    /// existing load balancer is renamed in place if the cloud supports it, and never recreated. The annotation name overrides the template
    /// for a Service.
    #[arg(long, value_name = "TEMPLATE")]
    load_balancer_name_template: Option<String>,

    /// Another controller that managed the Services before. Its annotations are honoured, too, and its load balancers are adopted.
    #[arg(long, value_name = "CONTROLLER")]
    compat: Option<Compat>,

    /// The `spec.loadBalancerClass` that this controller manages.
    #[arg(long, value_name = "NAME")]
    load_balancer_class: Option<String>,

    /// Whether this controller manages Services without a class.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    default_load_balancer: bool,

    /// How to handle load balancers of this cluster that no Service uses any more.
    #[arg(long, value_name = "WHAT", default_value = "report")]
    orphans: OrphansArg,

    /// Minimum time that a load balancer must have been without a Service before --orphans=delete deletes it. Per window of this length at
    /// most 10 load balancers, and at most 30 % of all, are deleted.
    #[arg(long, value_name = "DURATION", default_value = "1h")]
    orphan_minimum_age: String,

    /// Delete the load balancers of all Services that this controller manages, then exit. The Services stay. Set before uninstalling.
    #[arg(long)]
    remove_all: bool,

    // This field must be last, because its help headings also apply to the flags after it.
    #[command(flatten)]
    common: CommonArgs,

    /// Address of the plain HTTP endpoint with /metrics, /healthz, /livez and /readyz.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:10271", help_heading = "Pages")]
    http_address: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum OrphansArg {
    /// Report them with a log line, an Event and a metric, and keep them.
    Report,
    /// Report them, and delete them after --orphan-minimum-age.
    Delete,
}

#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) common: CommonConfig,
    pub(crate) work: Work,
}

/// The settings that decide what the controller does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    pub(crate) workers: usize,
    pub(crate) reading: Reading,
    pub(crate) orphans: Orphans,
}

impl Config {
    pub(crate) fn from_arguments(
        arguments: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        read(arguments, judge)
    }
}

fn judge(args: &Args, faults: &mut Faults) -> Option<Config> {
    let workers =
        faults.in_range("--concurrent-service-syncs <N>", &args.concurrent_service_syncs, 1..=MOST_SYNCS);
    let common = args.common.check(&args.http_address, faults);
    let classes = classes(args, faults);
    if args.remove_all && args.common.dry_run {
        faults.add(
            "--remove-all",
            "true",
            "--dry-run deletes nothing, so the removal would never end: remove one of the two flags",
        );
    }
    let orphans = orphans(args, faults);
    let bounds = bounds(args, faults);
    let defaults = defaults(&args.service_default, bounds, faults).called(names(args, faults));
    let reading = Reading { defaults, compat: args.compat, classes: classes?, none_wanted: args.remove_all };
    Some(Config { common: common?, work: Work { workers: workers?, reading, orphans: orphans? } })
}

fn classes(args: &Args, faults: &mut Faults) -> Option<Classes> {
    let own = args.load_balancer_class.clone();
    let given = own.as_deref().unwrap_or_default();
    let named = match &own {
        Some(class) if !is_class(class) => {
            Err("is not a valid class: write one such as example.com/internal")
        }
        Some(_) | None => Ok(()),
    };
    let any = if own.is_none() && !args.default_load_balancer {
        Err("leaves no Service to manage: set --load-balancer-class")
    } else {
        Ok(())
    };
    let named = faults.check("--load-balancer-class <NAME>", given, named);
    faults.check("--default-load-balancer <BOOL>", "false", any)?;
    named.map(|()| Classes { own, unclassed: args.default_load_balancer })
}

/// Returns the valid template. `None`: no template is set, or the template is invalid, which is recorded in `faults`.
fn names(args: &Args, faults: &mut Faults) -> Option<Template> {
    let given = args.load_balancer_name_template.as_deref()?;
    let read = Template::read(given, &args.common.cluster_name);
    faults.check("--load-balancer-name-template <TEMPLATE>", given, read)
}

/// Whether the class is a label name, with or without a prefix, as the API server requires.
fn is_class(class: &str) -> bool {
    let (prefix, name) = class.split_once('/').unwrap_or(("a", class));
    let fits = |word: &str, longest: usize, rest: &[char]| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        word.len() <= longest
            && edge(word.chars().next())
            && edge(word.chars().last())
            && word.chars().all(|c| c.is_ascii_alphanumeric() || rest.contains(&c))
    };
    fits(name, 63, &['-', '_', '.']) && fits(prefix, 253, &['-', '.'])
}

fn orphans(args: &Args, faults: &mut Faults) -> Option<Orphans> {
    let given = &args.orphan_minimum_age;
    let age = faults.check("--orphan-minimum-age <DURATION>", given, values::duration(given))?;
    Some(match args.orphans {
        OrphansArg::Report => Orphans::Report,
        OrphansArg::Delete => Orphans::DeleteAfter(Duration::from_secs(age.0.into())),
    })
}

/// Invalid values are recorded in `faults` and skipped.
fn bounds(args: &Args, faults: &mut Faults) -> Bounds {
    let given = &args.health_check_ports;
    let entries = given.split(',').map(str::trim).filter(|_| !given.trim().is_empty());
    let ports: Result<Ports, String> = entries.map(values::port).collect();
    let ports = faults.check("--health-check-ports <PORTS>", given, ports);
    let most = &args.max_members_per_service;
    let members = faults.in_range("--max-members-per-service <N>", most, 1..=MOST_MEMBERS);
    Bounds { health_check_ports: ports.unwrap_or_default(), members: members.unwrap_or(MEMBERS) }
}

fn defaults(pairs: &[String], bounds: Bounds, faults: &mut Faults) -> Defaults {
    let mut defaults = Defaults::default().within(bounds);
    for pair in pairs {
        let validated = match pair.split_once('=') {
            Some((key, value)) => add_default(&mut defaults, key, value),
            None => Err("write it as idle-timeout=5m".to_owned()),
        };
        faults.check("--service-default <KEY=VALUE>", pair, validated);
    }
    defaults
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Config, String> {
        let arguments = ["service-controller", "--cluster-id=u-1"].iter().chain(flags);
        Config::from_arguments(arguments).map_err(|error| {
            assert_eq!(error.exit_code(), 2);
            error.to_string()
        })
    }

    // Behaviour: W2
    #[test]
    fn only_cluster_id_flag_is_required_by_service_controller() {
        let config = parse(&[]).unwrap();
        assert_eq!(config.work.workers, 50);
        assert_eq!(config.work.orphans, Orphans::Report);
        assert_eq!(config.work.reading.classes, Classes { own: None, unclassed: true });
        assert_eq!(config.common.http_address.to_string(), "0.0.0.0:10271");
    }

    #[test]
    fn remove_all_is_refused_with_dry_run() {
        assert!(parse(&["--dry-run"]).unwrap().common.dry_run);
        assert!(!parse(&["--dry-run=false", "--remove-all"]).unwrap().common.dry_run);
        let error = parse(&["--dry-run", "--remove-all"]).unwrap_err();
        assert!(error.contains("--dry-run deletes nothing"), "{error}");
    }

    // Behaviour: P1
    #[test]
    fn all_faults_are_reported_at_once() {
        for number in ["0", "-5", "many"] {
            let number = format!("--concurrent-service-syncs={number}");
            let error = parse(&[&number, "--http-address=x"]).unwrap_err();
            assert!(
                error.contains("for '--concurrent-service-syncs") && error.contains("1..=1000"),
                "{error}"
            );
            assert!(error.contains("'x' for '--http-address"), "{error}");
        }
    }

    #[test]
    fn service_defaults_are_validated_like_annotations() {
        let good = [
            "--service-default=idle-timeout=5m",
            "--service-default=tags=team=shop",
            "--service-default=x.sim.a=b",
        ];
        parse(&good).unwrap();
        let bad = ["idle-timeout=5", "intrenal=true", "hostname=a.example.com", "size", "size=a", "size=b"];
        let error = parse(&bad.map(|pair| ["--service-default", pair]).concat()).unwrap_err();
        let faults: Vec<&str> = error.lines().filter(|line| line.contains("--service-default")).collect();
        insta::assert_snapshot!(faults.join("\n"), @r#"
        error: invalid value 'idle-timeout=5' for '--service-default <KEY=VALUE>': "5" is not a duration from 1s to 24h: write one such as 90s, 5m or 1h
        error: invalid value 'intrenal=true' for '--service-default <KEY=VALUE>': unknown key, did you mean 'lb.cloudadapter.dev/internal'?
        error: invalid value 'hostname=a.example.com' for '--service-default <KEY=VALUE>': hostname applies to a single Service or port, so it cannot have a default
        error: invalid value 'size' for '--service-default <KEY=VALUE>': write it as idle-timeout=5m
        error: invalid value 'size=b' for '--service-default <KEY=VALUE>': size is set twice: set it once
        "#);
    }

    #[test]
    fn default_health_check_port_must_be_allowed() {
        let bounds =
            |flags: &[&str]| parse(flags).map(|config| config.work.reading.defaults.bounds().clone());
        let of = |ports: &[u32]| {
            Ok(Bounds { health_check_ports: ports.iter().copied().collect(), ..Bounds::default() })
        };
        assert_eq!(bounds(&[]), of(&[10_256]));
        assert_eq!(bounds(&[]), Ok(Bounds::default()));
        assert_eq!(bounds(&["--health-check-ports=9000, 10256"]), of(&[9_000, 10_256]));
        assert_eq!(bounds(&["--health-check-ports="]), of(&[]));
        parse(&["--service-default=health-check.port=10256"]).unwrap();
        parse(&["--service-default=health-check.port=9000", "--health-check-ports=9000"]).unwrap();
        let error = parse(&["--service-default=health-check.port=9000"]).unwrap_err();
        let reported = "invalid value 'health-check.port=9000' for '--service-default <KEY=VALUE>': port 9000 is not in \
                    --health-check-ports (10256): add it to this flag";
        assert!(error.contains(reported), "{error}");
        let error = parse(&["--health-check-ports=10256,http"]).unwrap_err();
        let reported = "invalid value '10256,http' for '--health-check-ports <PORTS>': \"http\" is not a number from 1 to 65535";
        assert!(error.contains(reported), "{error}");
    }

    #[test]
    fn member_limit_is_a_flag() {
        let members =
            |flags: &[&str]| parse(flags).map(|config| config.work.reading.defaults.bounds().members);
        assert_eq!((members(&[]), members(&["--max-members-per-service=7"])), (Ok(20_000), Ok(7)));
        for bad in ["0", "-1", "many"] {
            let error = members(&[&format!("--max-members-per-service={bad}")]).unwrap_err();
            assert!(error.contains("for '--max-members-per-service <N>'"), "{error}");
        }
    }

    #[test]
    fn name_template_contains_cluster_name_and_is_validated() {
        let names = |flags: &[&str]| parse(flags).map(|config| config.work.reading.defaults);
        assert_eq!(names(&[]), Ok(Defaults::default()));
        let template = Template::read("{cluster}-{namespace}-{service}", "prod").unwrap();
        let flag = "--load-balancer-name-template={cluster}-{namespace}-{service}";
        assert_eq!(names(&[flag, "--cluster-name=prod"]), Ok(Defaults::default().called(Some(template))));
        let error = names(&["--load-balancer-name-template={cluster}-{name}"]).unwrap_err();
        assert!(
            error.contains("for '--load-balancer-name-template <TEMPLATE>': {name} is not known"),
            "{error}"
        );
    }

    #[test]
    fn foreign_annotations_need_compat_flag() {
        assert_eq!(parse(&[]).unwrap().work.reading.compat, None);
        assert_eq!(parse(&["--compat=openstack"]).unwrap().work.reading.compat, Some(Compat::Openstack));
        let error = parse(&["--compat=openstck"]).unwrap_err();
        assert!(error.contains("--compat <CONTROLLER>") && error.contains("openstack"), "{error}");
    }

    #[test]
    fn load_balancer_class_flag_is_validated() {
        let classes = |flags: &[&str]| parse(flags).map(|config| config.work.reading.classes);
        let own = |class: &str, unclassed| Classes { own: Some(class.to_owned()), unclassed };
        let internal = "--load-balancer-class=example.com/internal";
        assert_eq!(classes(&[internal]), Ok(own("example.com/internal", true)));
        assert_eq!(
            classes(&[internal, "--default-load-balancer=false"]),
            Ok(own("example.com/internal", false))
        );
        assert_eq!(classes(&["--load-balancer-class=Internal_1"]), Ok(own("Internal_1", true)));
        for bad in ["", "a/b/c", "/a", "a/", "-a", "a b", "a_b/c"] {
            let error = classes(&[&format!("--load-balancer-class={bad}")]).unwrap_err();
            assert!(error.contains("is not a valid class"), "{bad}: {error}");
        }
        let error = classes(&["--default-load-balancer=false"]).unwrap_err();
        assert!(error.contains("leaves no Service to manage"), "{error}");
    }

    #[test]
    fn orphans_are_reported_by_default() {
        let orphans = |flags: &[&str]| parse(flags).map(|config| config.work.orphans);
        let after = |secs| Ok(Orphans::DeleteAfter(Duration::from_secs(secs)));
        assert_eq!(orphans(&["--orphan-minimum-age=2h"]), Ok(Orphans::Report));
        assert_eq!(orphans(&["--orphans=delete"]), after(3600));
        assert_eq!(orphans(&["--orphans=delete", "--orphan-minimum-age=90s"]), after(90));
        let error = orphans(&["--orphans=remove", "--orphan-minimum-age=soon"]).unwrap_err();
        assert!(error.contains("--orphans"), "{error}");
        let error = orphans(&["--orphan-minimum-age=soon"]).unwrap_err();
        assert!(error.contains("'soon' for '--orphan-minimum-age <DURATION>'"), "{error}");
    }

    #[test]
    fn remove_all_is_off_by_default() {
        let none_wanted = |flags: &[&str]| parse(flags).map(|config| config.work.reading.none_wanted);
        assert_eq!((none_wanted(&[]), none_wanted(&["--remove-all"])), (Ok(false), Ok(true)));
    }

    #[test]
    fn misspelt_flag_gets_a_suggestion() {
        let error = parse(&["--concurrent-service-sync=3"]).unwrap_err();
        assert!(error.contains("--concurrent-service-syncs"), "{error}");
    }
}
