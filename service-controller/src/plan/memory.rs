//! What is remembered of one Service between two looks at it. All of it may be lost at any time: a restart costs one
//! question to the adapter per Service, which it answers from its own memory.

use std::time::Duration;

use super::{
    Ask, News, Why,
    cloud::{Answer, Balancer, Removal, State, listeners},
    compat::Foreign,
    service::{Ingress, Service, same_ingress},
};

/// How long a difference between the mirror and the adapter's own word is believed to be the mirror's lag.
pub(crate) const LAG: Duration = Duration::from_mins(5);

/// A load balancer that was just removed may be shown for a while yet, above all by an adapter that comes back.
const ORPHAN_AFTER: Duration = Duration::from_mins(1);

/// When an adapter does not say when to ask again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What is remembered of one Service.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Memory {
    /// The adapter's last word that what we asked for is there.
    pub(crate) settled: Option<Settled>,
    /// The adapter's word that nothing is left.
    pub(crate) removed: bool,
    /// What is going on, and since when.
    work: Option<(Work, Duration)>,
    /// The trouble that people were told last.
    told: Option<String>,
    /// The adapter asked us not to call before this, since the start of the process.
    held_until: Option<Duration>,
    /// Since when the mirror shows a load balancer that nobody wants.
    orphan_since: Option<Duration>,
    /// What people were told of annotations of another controller.
    told_foreign: Foreign,
    /// Our own last write, as long as the cache may not show it.
    written: Option<Written>,
}

/// What an adapter confirmed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settled {
    /// Digest of what was asked for, but for the backends.
    pub(crate) shape: String,
    /// The set of backends that was asked for.
    pub(crate) targets: String,
    pub(crate) state: State,
    pub(crate) applied_hash: String,
    pub(crate) ingress: Vec<Ingress>,
    listeners: Vec<String>,
    /// What the mirror showed at that time. A difference that the adapter has been asked about is not asked about again
    /// before [`LAG`] is over: the mirror may be behind.
    seen: Option<Vec<Balancer>>,
    /// When, since the start of the process.
    at: Duration,
}

/// Something that takes more than one look, the larger one last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Hosts,
    Build,
    Remove,
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    /// The version in the cache when we wrote.
    over: String,
    finalizer: bool,
    ingress: Vec<Ingress>,
}

/// What follows from an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Outcome {
    /// What people shall hear, in order.
    pub(crate) news: Vec<News>,
    pub(crate) next: Next,
    /// Other nodes are behind it now; so long after they were asked for first.
    pub(crate) hosts_updated: Option<Duration>,
}

/// When to look again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Next {
    /// At once: there may be more to do.
    #[default]
    Now,
    /// The adapter works on it.
    After(Duration),
    /// Something is wrong.
    Backoff,
}

impl Outcome {
    fn later(news: Vec<News>, next: Next) -> Self {
        Self { news, next, hosts_updated: None }
    }
}

impl Memory {
    /// The Service with our own writes that the cache does not show yet, so that none is repeated.
    pub(crate) fn overlay(&mut self, mut service: Service) -> Service {
        self.written = self.written.take().filter(|written| written.over == service.version);
        if let Some(written) = &self.written {
            service.finalizer = written.finalizer;
            service.ingress.clone_from(&written.ingress);
        }
        service
    }

    /// Notes that `service`, as it is now, was written over the version in the cache.
    pub(crate) fn wrote(&mut self, service: &Service) {
        self.written = Some(Written {
            over: service.version.clone(),
            finalizer: service.finalizer,
            ingress: service.ingress.clone(),
        });
    }

    /// Takes note of what the mirror shows: once it has caught up, the next difference is news.
    pub(crate) fn observe(&mut self, cloud: Option<&[Balancer]>) {
        if let Some(cloud) = cloud
            && let Some(settled) = &mut self.settled
            && settled.difference(cloud).is_none()
        {
            settled.seen = None;
        }
    }

    /// Why what the mirror shows is not what the adapter confirmed, unless it was asked about exactly this already.
    pub(crate) fn drift(&self, cloud: &[Balancer], now: Duration) -> Option<String> {
        let settled = self.settled.as_ref()?;
        // What is pending will be shown again when it is not: mostly it is the work that was just confirmed as done.
        let shown_again = cloud.iter().any(|it| it.state == State::Pending);
        let asked = settled.seen.as_deref() == Some(cloud) || shown_again;
        let lags = now.saturating_sub(settled.at) < LAG;
        settled.difference(cloud).filter(|_| !(asked && lags))
    }

    /// What people hear before the adapter is asked. The load balancer may exist from now on.
    pub(crate) fn asking(&mut self, ask: &Ask) -> Vec<News> {
        self.removed = false;
        match ask.why {
            Why::Changed | Why::Missing => self.start(Work::Build, ask),
            Why::Hosts => self.start(Work::Hosts, ask),
            Why::FirstLook | Why::Drift(_) => Vec::new(),
        }
    }

    /// What follows from the answer to an ensure.
    pub(crate) fn answered(&mut self, ask: &Ask, answer: Answer, seen: Option<&[Balancer]>) -> Outcome {
        let work = if ask.why == Why::Hosts { Work::Hosts } else { Work::Build };
        let mut news = Vec::new();
        if answer.worked(seen) {
            news = self.start(work, ask);
        }
        let hosts_updated = self.hosts_since().map(|since| ask.at.saturating_sub(since));
        match answer.state {
            State::Active | State::Degraded => {
                news.extend(self.finish(ask));
                news.extend(self.doubts(&answer));
                self.settled = Some(Settled {
                    shape: ask.shape.clone(),
                    targets: ask.spec.backend_set_id.clone(),
                    state: answer.state,
                    applied_hash: answer.applied_hash,
                    ingress: answer.ingress,
                    listeners: listeners(&ask.spec),
                    seen: seen.map(<[Balancer]>::to_vec),
                    at: ask.at,
                });
                Outcome { news, next: Next::Now, hosts_updated }
            }
            State::Pending => Outcome::later(news, Next::After(answer.retry_after.unwrap_or(ASK_AGAIN))),
            State::Error | State::Deleting | State::Absent | State::Unknown => {
                self.settled = None;
                news.extend(self.trouble(&format!(
                    "the load balancer is {}{}",
                    answer.state,
                    tail(&answer.why)
                )));
                Outcome::later(news, answer.retry_after.map_or(Next::Backoff, Next::After))
            }
        }
    }

    /// What people hear before the removal is asked for. Whatever was confirmed is void from now on.
    pub(crate) fn removing(&mut self) -> Vec<News> {
        self.settled = None;
        match self.work.replace((Work::Remove, Duration::ZERO)) {
            Some((Work::Remove, _)) => Vec::new(),
            Some((Work::Hosts | Work::Build, _)) | None => vec![News::Deleting],
        }
    }

    /// What follows from the answer to a delete.
    pub(crate) fn removal(&mut self, answer: &Removal) -> Outcome {
        match answer.state {
            State::Absent => {
                self.removed = true;
                Outcome::default()
            }
            State::Deleting | State::Pending => {
                Outcome::later(Vec::new(), Next::After(answer.retry_after.unwrap_or(ASK_AGAIN)))
            }
            State::Error | State::Active | State::Degraded | State::Unknown => {
                let text = format!("the load balancer is {} and not gone{}", answer.state, tail(&answer.why));
                Outcome::later(self.trouble(&text), Next::Backoff)
            }
        }
    }

    /// The finalizer is off: only the fact that we wrote is kept.
    pub(crate) fn released(&mut self) -> Vec<News> {
        *self = Self { written: self.written.take(), ..Self::default() };
        vec![News::Deleted]
    }

    /// A trouble, if it is another one than last time.
    pub(crate) fn trouble(&mut self, text: &str) -> Vec<News> {
        self.trouble_named(text, text)
    }

    /// A trouble whose text may vary from try to try; only its name tells whether it is another one.
    pub(crate) fn trouble_named(&mut self, name: &str, text: &str) -> Vec<News> {
        if self.told.as_deref() == Some(name) {
            return Vec::new();
        }
        self.told = Some(name.to_owned());
        vec![News::Trouble(text.to_owned())]
    }

    /// What people shall hear of annotations of another controller: once for each change of them.
    pub(crate) fn foreign(&mut self, foreign: &Foreign) -> Vec<News> {
        let told = Foreign { refusals: Vec::new(), ..foreign.clone() };
        if self.told_foreign == told {
            return Vec::new();
        }
        self.told_foreign = told.clone();
        let Foreign { understood, ignored, .. } = told;
        let news = [(understood, News::Compatible as fn(_) -> _), (ignored, News::Ignored)];
        news.into_iter().filter(|(words, _)| !words.is_empty()).map(|(words, news)| news(words)).collect()
    }

    /// The adapter asks us not to call for so long, whatever happens to the Service meanwhile.
    pub(crate) fn hold(&mut self, now: Duration, delay: Duration) {
        self.held_until = Some(now + delay);
    }

    /// For how much longer the adapter shall not be called.
    pub(crate) fn held(&self, now: Duration) -> Option<Duration> {
        self.held_until.and_then(|until| until.checked_sub(now)).filter(|rest| !rest.is_zero())
    }

    /// All is well: the next trouble is news again.
    pub(crate) fn calm(&mut self) {
        if self.settled.as_ref().is_none_or(|settled| settled.state != State::Degraded) {
            self.told = None;
        }
        self.held_until = None;
        self.orphan_since = None;
    }

    /// How much longer a load balancer that nobody wants may be only the mirror's lag. `None`: it is an orphan.
    pub(crate) fn orphan_doubt(&mut self, now: Duration) -> Option<Duration> {
        let since = *self.orphan_since.get_or_insert(now);
        (since + ORPHAN_AFTER).checked_sub(now).filter(|doubt| !doubt.is_zero())
    }

    /// Whether it is about a load balancer and no Service.
    pub(crate) fn is_of_an_orphan(&self) -> bool {
        self.orphan_since.is_some()
    }

    fn start(&mut self, work: Work, ask: &Ask) -> Vec<News> {
        // A removal that was called off is no reason to be silent about what is built now.
        if self.work.is_some_and(|(under_way, _)| under_way >= work && under_way != Work::Remove) {
            return Vec::new();
        }
        self.work = Some((work, ask.at));
        match work {
            Work::Hosts | Work::Remove => Vec::new(),
            Work::Build if ask.no_targets => vec![News::Ensuring, News::NoTargets],
            Work::Build => vec![News::Ensuring],
        }
    }

    fn finish(&mut self, ask: &Ask) -> Vec<News> {
        match self.work.take().map(|(work, _since)| work) {
            None | Some(Work::Remove) => Vec::new(),
            Some(Work::Build) => vec![News::Ensured],
            Some(Work::Hosts) if ask.no_targets => vec![News::NoTargets],
            Some(Work::Hosts) => vec![News::Updated],
        }
    }

    fn hosts_since(&self) -> Option<Duration> {
        self.work.filter(|(work, _)| *work == Work::Hosts).map(|(_, since)| since)
    }

    fn doubts(&mut self, answer: &Answer) -> Vec<News> {
        match answer.state {
            State::Degraded => {
                self.trouble(&format!("the load balancer serves, but is degraded{}", tail(&answer.why)))
            }
            State::Active
            | State::Pending
            | State::Error
            | State::Deleting
            | State::Absent
            | State::Unknown => {
                self.told = None;
                Vec::new()
            }
        }
    }
}

impl Settled {
    fn difference(&self, cloud: &[Balancer]) -> Option<String> {
        match cloud {
            [] => Some("it is gone".to_owned()),
            [one] if one.state != self.state => Some(format!("it is {}", one.state)),
            [one] if one.applied_hash != self.applied_hash => Some("it was changed".to_owned()),
            [one] if !same_ingress(&one.ingress, &self.ingress) => Some("its addresses changed".to_owned()),
            [one] if !one.listeners.is_empty() && one.listeners != self.listeners => {
                Some("its listeners changed".to_owned())
            }
            [_] => None,
            several => Some(format!("there are {} of it", several.len())),
        }
    }
}

fn tail(why: &str) -> String {
    if why.is_empty() { String::new() } else { format!(": {why}") }
}

#[cfg(test)]
mod tests;
