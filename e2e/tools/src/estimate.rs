//! The time that all missing programs take to build, for a message before the first build. Pure.

use std::time::Duration;

use crate::progress::clock;
use crate::tool::Tool;

/// The programs to build, each with the usual time of its build without a cache on two cores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Estimate(Vec<(String, Duration)>);

impl Estimate {
    /// Adds programs in Rust, which one call of cargo builds.
    #[must_use]
    pub fn with_rust(mut self, time: Duration) -> Self {
        self.0.push(("the programs in Rust".to_owned(), time));
        self
    }

    /// Adds programs in Go.
    #[must_use]
    pub fn with_tools(mut self, tools: &[Tool]) -> Self {
        self.0.extend(tools.iter().map(|it| (it.name().to_owned(), it.build_time())));
        self
    }

    /// Returns the line for the user, or `None` if there is nothing to build.
    pub fn line(&self) -> Option<String> {
        let total: Duration = self.0.iter().map(|(_, time)| *time).sum();
        let minutes = match total.as_secs().div_ceil(60) {
            0 => return None,
            1 => "a minute".to_owned(),
            more => format!("{more} minutes"),
        };
        let parts: Vec<String> =
            self.0.iter().map(|(name, time)| format!("{name} {}", clock(*time))).collect();
        Some(format!(
            "Building what is missing usually takes about {minutes} on two cores, once: {}",
            parts.join(", ")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Estimate, Tool};

    #[test]
    fn total_comes_before_the_parts() {
        let all =
            Estimate::default().with_rust(Duration::from_mins(10)).with_tools(&[Tool::Etcd, Tool::Helm]);
        assert_eq!(
            all.line().as_deref(),
            Some(
                "Building what is missing usually takes about 13 minutes on two cores, once: the programs in Rust 10m00s, etcd \
                 30s, helm 2m25s"
            )
        );
        let one = Estimate::default().with_tools(&[Tool::Etcd]).line().unwrap();
        assert!(one.contains("about a minute on two cores, once: etcd 30s"), "{one}");
        assert_eq!(Estimate::default().with_tools(&[]).line(), None, "nothing is missing");
    }
}
