//! One JSON object per event: `ts level target msg`, who logs, then the fields of the spans around it and its own.

use std::fmt;
use std::io::Write as _;

use quorate_base::time::Clock;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::Identity;

/// Writes each event as one line of JSON. An inner field of the same name wins: event over inner span over outer span.
pub(super) struct JsonLayer<W> {
    clock: Clock,
    identity: Option<(&'static str, String)>,
    writer: W,
}

impl<W> JsonLayer<W> {
    pub(super) fn new(clock: Clock, identity: &Identity, writer: W) -> Self {
        let identity = identity.field().map(|(key, name)| (key, name.to_owned()));
        Self { clock, identity, writer }
    }
}

/// The fields of one span, kept while it lives.
struct SpanFields(Map<String, Value>);

impl<S, W> Layer<S> for JsonLayer<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + 'static,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Fields::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(SpanFields(fields.0));
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(SpanFields(known)) = span.extensions_mut().get_mut()
        {
            let mut fields = Fields::default();
            values.record(&mut fields);
            known.extend(fields.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut line = Map::new();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(SpanFields(fields)) = span.extensions().get() {
                line.extend(fields.clone());
            }
        }
        let mut fields = Fields::default();
        event.record(&mut fields);
        let message = fields.0.remove("message").unwrap_or_else(|| Value::String(String::new()));
        line.extend(fields.0);
        // Last, so that no field can forge them.
        line.insert("ts".to_owned(), self.clock.now().to_string().into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), metadata.target().into());
        line.insert("msg".to_owned(), message);
        if let Some((key, name)) = &self.identity {
            line.insert((*key).to_owned(), name.as_str().into());
        }
        // One write per line keeps lines of several threads whole. There is nobody to tell that the log is gone.
        let _ =
            self.writer.make_writer_for(metadata).write_all(format!("{}\n", Value::Object(line)).as_bytes());
    }
}

/// Collects the fields of an event or a span.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn put(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io;
    use std::sync::{Arc, Mutex};

    use quorate_base::sync::lock;
    use quorate_base::time::Timestamp;
    use serde_json::json;
    use tracing_subscriber::layer::SubscriberExt as _;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What the layer writes for the events of `body`, line by line.
    fn lines(identity: &Identity, body: impl FnOnce()) -> Vec<Value> {
        let sink = Sink::default();
        let writer = sink.clone();
        let clock = Clock::manual(Timestamp::from_millis(1_234_567_890_123));
        let layer = JsonLayer::new(clock, identity, move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), body);
        let text = String::from_utf8(lock(&sink.0).clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_holds_the_fixed_fields_and_those_of_the_event() {
        let lines = lines(&Identity::Manager("m1".into()), || {
            tracing::info!(target: "raft", term = 3, ratio = 0.5, ok = true, why = %"a \"b\"", "elected\nnow");
        });
        let expected = json!({
            "ts": "2009-02-13T23:31:30.123Z", "level": "INFO", "target": "raft", "msg": "elected\nnow", "manager": "m1",
            "term": 3, "ratio": 0.5, "ok": true, "why": "a \"b\"",
        });
        assert_eq!(lines, [expected]);
    }

    #[test]
    fn span_fields_surround_the_event_and_the_innermost_wins() {
        let lines = lines(&Identity::Node("n1".into()), || {
            let outer = tracing::info_span!("rpc", request_id = "r1", job = tracing::field::Empty, term = 1);
            let _outer = outer.enter();
            outer.record("job", "web");
            let _inner = tracing::info_span!("apply", term = 2).entered();
            tracing::warn!(target: "x", ts = "forged", node = "forged", "slow");
        });
        let expected = json!({
            "ts": "2009-02-13T23:31:30.123Z", "level": "WARN", "target": "x", "msg": "slow", "node": "n1",
            "request_id": "r1", "job": "web", "term": 2,
        });
        assert_eq!(lines, [expected]);
    }
}
