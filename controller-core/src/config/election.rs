//! The flags of the leader election, with the names and defaults that the classic cloud controller manager has.

use std::{num::NonZeroU16, time::Duration};

use cloud_lease::{Settings, SettingsError, Timing};

use super::{Faults, duration, switches};

/// The flags that say which of several replicas works. Flatten it into a controller's own flags.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_args(switches))]
pub struct ElectionArgs {
    /// Into how many shards the work is split. Each has a Lease of its own, and replicas share them evenly: so many of them can work at
    /// once. With 1, one works and the others stand by. The same for all replicas; one with another number waits for the end of those.
    #[arg(long, value_name = "N", default_value = "1")]
    shards: String,

    /// Whether this is one of several replicas, of which the holder of a Lease works and the others stand by. With =false it is
    /// the only one, and nothing else may run under its name.
    #[arg(long, default_value = "true")]
    leader_elect: bool,

    /// Who stands by takes the Lease after it saw it unchanged for so long. The same for all replicas.
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    leader_elect_lease_duration: String,

    /// Who leads writes nothing any more once it could not renew the Lease for so long. It does not end, and goes on when it can again.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    leader_elect_renew_deadline: String,

    /// How long between two renewals, and between two looks of who stands by.
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    leader_elect_retry_period: String,

    /// Name of the Lease, and before -1, -2 and so on of those of further shards [default: cloud-node-controller, cloud-service-controller or cloud-route-controller]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,

    /// Namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system")]
    leader_elect_resource_namespace: String,
}

/// Which Lease is competed for, and how long things last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name. `None`: the controller's own.
    pub name: Option<String>,
    /// How long things last.
    pub timing: Timing,
    /// Into how many Leases the work is split: 1 to 64.
    pub shards: NonZeroU16,
}

impl Election {
    /// What a candidate needs to know.
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
    /// Judges them. `None`: there is no election, or something is wrong, which stands in `faults`.
    pub(super) fn check(&self, faults: &mut Faults) -> Option<Election> {
        let judge = |faults: &mut Faults, flag, text: &str| faults.check(flag, text, duration(text));
        let lasts = judge(faults, LEASE_DURATION, &self.leader_elect_lease_duration);
        let renew_deadline = judge(faults, RENEW_DEADLINE, &self.leader_elect_renew_deadline);
        let retry = judge(faults, RETRY_PERIOD, &self.leader_elect_retry_period);
        let timing = Timing { duration: lasts?, renew_deadline: renew_deadline?, retry: retry? };
        let shards = self.shards(faults)?;
        // What does not happen cannot go wrong.
        if !self.leader_elect {
            return None;
        }
        let election = Election {
            namespace: self.leader_elect_resource_namespace.clone(),
            name: self.leader_elect_resource_name.clone(),
            timing,
            shards,
        };
        // The real identity is made of what the machine says.
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

    /// The flag that a setting comes from, and what it was given.
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

/// Each replica looks at the Lease of each.
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

    #[test]
    fn the_defaults_are_those_of_the_classic_controller() {
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

    #[test]
    fn without_an_election_nothing_is_asked_of_its_times() {
        for odd in ["--leader-elect-lease-duration=5s", "--leader-elect-resource-name=Lease"] {
            assert_eq!(parse(&["--leader-elect=false", odd]), Ok(None), "{odd}");
            assert!(parse(&[odd]).is_err(), "{odd}");
        }
        parse(&["--leader-elect=false", "--leader-elect-lease-duration=soon"]).expect_err("no duration");
        let error = parse(&["--leader-elect=false", "--shards=2"]).expect_err("nobody would have the second");
        assert!(error.contains("--shards") && error.contains("remove --leader-elect=false"), "{error}");
    }

    #[test]
    fn what_cannot_work_is_named_with_its_flag() {
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
            // Which of two that do not fit is blamed, is the later one in their order.
            let blamed = if (flag, value) == ("--leader-elect-lease-duration", "10s") {
                "--leader-elect-renew-deadline"
            } else {
                flag
            };
            assert!(error.contains(blamed), "{flag}={value}: {error}");
        }
    }
}
