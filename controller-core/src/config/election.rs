//! The flags of the leader election, with the names and defaults of the former cloud controller manager.

use std::{num::NonZeroU16, time::Duration};

use cloud_lease::{Settings, SettingsError, Timing};

use super::{Faults, duration, switches};

/// Flags for the leader election between replicas. Flatten this struct into a controller's own arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_args(switches))]
pub struct ElectionArgs {
    /// Number of shards into which the work is split. Each shard has its own Lease, and replicas share the Leases evenly, so that up to
    /// this many replicas work at once. With 1, one replica works and the others stand by. Must be the same for all replicas; a replica
    /// with another number waits until the replicas with the old number have ended
    #[arg(long, value_name = "N", default_value = "1")]
    shards: String,

    /// Whether several replicas run, so that only the holder of a Lease works and the others stand by. With =false this replica must be the
    /// only process under its name
    #[arg(long, default_value = "true")]
    leader_elect: bool,

    /// Time after which a standby acquires a Lease that it has not seen renewed. Must be the same for all replicas
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    leader_elect_lease_duration: String,

    /// Time without a successful renewal of the Lease after which a leader stops writing. The process keeps running, and resumes when it
    /// can renew the Lease again
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    leader_elect_renew_deadline: String,

    /// Interval between renewals of the Lease, and between the checks of a standby
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    leader_elect_retry_period: String,

    /// Name of the Lease, and the prefix before -1, -2 and so on for further shards [default: cloud-node-controller,
    /// cloud-service-controller or cloud-route-controller]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,

    /// Namespace of the Lease
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

/// The Lease that replicas compete for, and its timing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease. `None`: the controller's default name.
    pub name: Option<String>,
    /// Durations of the election.
    pub timing: Timing,
    /// Number of shards into which the work is split, each with its own Lease: 1 to 64.
    pub shards: NonZeroU16,
}

impl Election {
    pub(crate) fn settings(&self, controller: &str, identity: String) -> Settings {
        Settings {
            namespace: self.namespace.clone(),
            name: self.name.clone().unwrap_or_else(|| format!("cloud-{controller}")),
            identity,
            timing: self.timing,
        }
    }
}

impl ElectionArgs {
    /// Validates the flags. Returns `None` if the election is disabled, or if a flag is invalid. In the latter case, `faults` contains the
    /// reason.
    pub(super) fn check(&self, faults: &mut Faults) -> Option<Election> {
        let judge = |faults: &mut Faults, flag, text: &str| faults.check(flag, text, duration(text));
        let lasts = judge(faults, LEASE_DURATION, &self.leader_elect_lease_duration);
        let renew_deadline = judge(faults, RENEW_DEADLINE, &self.leader_elect_renew_deadline);
        let retry = judge(faults, RETRY_PERIOD, &self.leader_elect_retry_period);
        let timing = Timing { duration: lasts?, renew_deadline: renew_deadline?, retry: retry? };
        let shards = self.shards(faults)?;
        // The flags of a disabled election are not validated.
        if !self.leader_elect {
            return None;
        }
        let election = Election {
            namespace: self.leader_elect_resource_namespace.clone(),
            name: self.leader_elect_resource_name.clone(),
            timing,
            shards,
        };
        // The controller and the identity are placeholders; the real identity is derived from the host name.
        if let Err(error) = election.settings("controller", "replica".to_owned()).check() {
            let (flag, value) = self.blamed(&error, timing);
            faults.add(flag, &value, error.fix);
            return None;
        }
        Some(election)
    }

    fn shards(&self, faults: &mut Faults) -> Option<NonZeroU16> {
        let number = faults.in_range(SHARDS, &self.shards, 1..=MOST_SHARDS)?;
        if number > 1 && !self.leader_elect {
            faults.add(SHARDS, &self.shards, "several shards need Leases: remove --leader-elect=false");
        }
        NonZeroU16::new(u16::try_from(number).ok()?)
    }

    /// Returns the flag that set the invalid setting, and the value of the flag.
    fn blamed(&self, error: &SettingsError, timing: Timing) -> (&'static str, String) {
        let text = |duration: Duration| format!("{duration:?}");
        match error.field {
            "namespace" => (NAMESPACE, self.leader_elect_resource_namespace.clone()),
            "timing.duration" => (LEASE_DURATION, text(timing.duration)),
            "timing.renew_deadline" => (RENEW_DEADLINE, text(timing.renew_deadline)),
            "timing.retry" => (RETRY_PERIOD, text(timing.retry)),
            _name => (NAME, self.leader_elect_resource_name.clone().unwrap_or_default()),
        }
    }
}

/// Maximum number of shards, since each replica watches the Lease of every shard.
const MOST_SHARDS: usize = 64;

const SHARDS: &str = "--shards <N>";
const LEASE_DURATION: &str = "--leader-elect-lease-duration <DURATION>";
const RENEW_DEADLINE: &str = "--leader-elect-renew-deadline <DURATION>";
const RETRY_PERIOD: &str = "--leader-elect-retry-period <DURATION>";
const NAME: &str = "--leader-elect-resource-name <NAME>";
const NAMESPACE: &str = "--leader-elect-resource-namespace <NAMESPACE>";

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::config;

    #[derive(Debug, Parser)]
    struct Args {
        #[command(flatten)]
        election: ElectionArgs,
    }

    fn parse(flags: &[&str]) -> Result<Option<Election>, String> {
        let arguments = ["controller"].iter().chain(flags);
        let read = config::read(arguments, |args: &Args, faults| Some(args.election.check(faults)));
        read.map_err(|error| error.to_string())
    }

    // Behaviour: P26
    #[test]
    fn the_defaults_are_those_of_the_former_ccm() {
        let secs = Duration::from_secs;
        let timing = Timing { duration: secs(15), renew_deadline: secs(10), retry: secs(2) };
        let shards = NonZeroU16::MIN;
        let election = Election { namespace: "kube-system".to_owned(), name: None, timing, shards };
        for given in [&[] as &[&str], &["--leader-elect"], &["--leader-elect=true"], &["--leader-elect=1"]] {
            assert_eq!(parse(given).expect("good"), Some(election.clone()), "{given:?}");
        }
        assert_eq!(parse(&["--leader-elect=false"]).expect("good"), None);
        let settings = election.settings("node-controller", "a".to_owned());
        assert_eq!((settings.name.as_str(), settings.check()), ("cloud-node-controller", Ok(())));
    }

    // Behaviour: P24
    #[test]
    fn without_an_election_its_times_are_not_validated() {
        for odd in ["--leader-elect-lease-duration=5s", "--leader-elect-resource-name=Lease"] {
            assert_eq!(parse(&["--leader-elect=false", odd]), Ok(None), "{odd}");
            assert!(parse(&[odd]).is_err(), "{odd}");
        }
        parse(&["--leader-elect=false", "--leader-elect-lease-duration=soon"])
            .expect_err("the duration is invalid");
        let error = parse(&["--leader-elect=false", "--shards=2"])
            .expect_err("no replica could hold the second Lease");
        assert!(error.contains("--shards") && error.contains("remove --leader-elect=false"), "{error}");
    }

    #[test]
    fn an_invalid_setting_names_its_flag() {
        for (flag, value) in [
            ("--leader-elect-lease-duration", "10s"),
            ("--leader-elect-lease-duration", "soon"),
            ("--leader-elect-renew-deadline", "15s"),
            ("--leader-elect-retry-period", "9s"),
            ("--leader-elect-retry-period", "0s"),
            ("--leader-elect-resource-name", "Lease"),
            ("--leader-elect-resource-namespace", "a.b"),
            ("--leader-elect", "perhaps"),
            ("--shards", "0"),
            ("--shards", "65"),
            ("--shards", "many"),
        ] {
            let error = parse(&[&format!("{flag}={value}")]).expect_err(value);
            // Of two values that do not fit together, the error names the later flag.
            let blamed = if (flag, value) == ("--leader-elect-lease-duration", "10s") {
                "--leader-elect-renew-deadline"
            } else {
                flag
            };
            assert!(error.contains(blamed), "{flag}={value}: {error}");
        }
    }
}
