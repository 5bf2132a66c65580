//! The span exporter. It logs one line when an outage begins, and another line when the outage ends.

use std::{
    error::Error,
    iter,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use tracing::{info, warn};

/// An exporter that logs each outage once. Spans are lost during an outage.
#[derive(Debug)]
pub(crate) struct LoggingExporter<E> {
    exporter: E,
    fails: AtomicBool,
}

impl<E> LoggingExporter<E> {
    pub(crate) fn new(exporter: E) -> Self {
        Self { exporter, fails: AtomicBool::new(false) }
    }
}

impl<E: SpanExporter> SpanExporter for LoggingExporter<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        let failed_before = self.fails.swap(sent.is_err(), Ordering::Relaxed);
        match &sent {
            Err(error) if !failed_before => {
                let error = causes(error);
                warn!(error, spans, "Traces cannot be sent; spans are lost until the collector is reachable");
            }
            Ok(()) if failed_before => info!("Traces are sent again; the collector is reachable"),
            Ok(()) | Err(_) => (),
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

/// An error with its causes. The function of this name in `cloud-lease` also hides the secrets of kube, on which this crate does not depend.
fn causes(error: &(dyn Error + 'static)) -> String {
    let all = iter::successors(Some(error), |error| (*error).source());
    all.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use std::{
        io::Write,
        sync::{Arc, Mutex},
    };

    use opentelemetry_sdk::error::OTelSdkError;
    use tracing_subscriber::fmt;

    use super::*;

    #[derive(Debug, Default)]
    struct Fake(Arc<AtomicBool>);

    impl SpanExporter for Fake {
        async fn export(&self, _batch: Vec<SpanData>) -> OTelSdkResult {
            if self.0.load(Ordering::Relaxed) {
                return Err(OTelSdkError::InternalFailure("connection refused".into()));
            }
            Ok(())
        }
    }

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("whole").write(text)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn an_outage_of_the_collector_is_logged_once() {
        let lines = Lines::default();
        let writer = lines.clone();
        crate::traces::testing::ask_each_thread();
        let log = fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        let _guard = tracing::subscriber::set_default(log);
        let fails = Arc::new(AtomicBool::new(true));
        let telling = LoggingExporter::new(Fake(Arc::clone(&fails)));
        for away in [true, true, false, false, true] {
            fails.store(away, Ordering::Relaxed);
            assert_eq!(telling.export(Vec::new()).await.is_err(), away);
        }
        let logged = String::from_utf8(lines.0.lock().expect("whole").clone()).expect("text");
        assert_eq!(logged.matches("Traces cannot be sent").count(), 2, "{logged}");
        assert_eq!(logged.matches("connection refused").count(), 2, "{logged}");
        assert_eq!(
            logged.matches("Traces are sent again; the collector is reachable").count(),
            1,
            "{logged}"
        );
    }
}
