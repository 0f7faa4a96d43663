//! Prometheus' text format, version 0.0.4: families with their help and type, samples with their labels.
//!
//! Source: Prometheus, "Exposition formats". The writer puts every sample of a family behind its head, which is all the
//! format asks for; names and labels are ours, values of labels are escaped.

use std::fmt::Write;
use std::time::Duration;

use cutwater_partition_log::meter::Measured;

/// A page in the making.
#[derive(Debug)]
pub(super) struct Page {
    text: String,
    family: &'static str,
    /// Series of topics, partitions and groups that may still come.
    room: usize,
    /// Those that found no room.
    left_out: u64,
}

/// What kind of value a family has.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Names of labels and their values.
pub(super) type Labels<'a> = &'a [(&'a str, &'a str)];

impl Page {
    /// An empty page with room for so many series of topics, partitions and groups.
    pub(super) fn new(room: usize) -> Page {
        Page { text: String::new(), family: "", room, left_out: 0 }
    }

    /// Begins a family; what follows belongs to it.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        self.family = name;
        self.line(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Into<Value>) {
        self.put("", labels, &value.into());
    }

    /// A sample whose labels others choose (topics, partitions, groups), if there is still room.
    pub(super) fn detail(&mut self, labels: Labels<'_>, value: impl Into<Value>) {
        if self.room == 0 {
            self.left_out += 1;
            return;
        }
        self.room -= 1;
        self.sample(labels, value);
    }

    /// Details that may still come.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// Details that found no room.
    pub(super) fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Notes details that weren't even looked up, for want of room.
    pub(super) fn leave_out(&mut self, details: u64) {
        self.left_out += details;
    }

    /// A histogram of seconds.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, measured: &Measured) {
        let mut below = 0;
        let bounds = measured.bounds.iter().map(|bound| number(bound.as_secs_f64())).chain(["+Inf".to_string()]);
        for (bound, count) in bounds.zip(&measured.counts) {
            below += count;
            let with_bound: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.put("_bucket", &with_bound, &Value::from(below));
        }
        self.put("_sum", labels, &Value::from(measured.total));
        self.put("_count", labels, &Value::from(below));
    }

    /// The whole page.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn put(&mut self, suffix: &str, labels: Labels<'_>, value: &Value) {
        let family = self.family;
        self.line(format_args!("{family}{suffix}"));
        for (index, (name, label)) in labels.iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            self.line(format_args!("{open}{name}=\"{}\"", escaped(label)));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        self.line(format_args!("{close} {}\n", value.0));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("text takes anything");
    }
}

/// A value as it is written.
#[derive(Debug)]
pub(super) struct Value(String);

impl From<u64> for Value {
    fn from(value: u64) -> Value {
        Value(value.to_string())
    }
}

impl From<usize> for Value {
    fn from(value: usize) -> Value {
        Value(value.to_string())
    }
}

/// In seconds.
impl From<Duration> for Value {
    fn from(value: Duration) -> Value {
        Value(number(value.as_secs_f64()))
    }
}

fn number(value: f64) -> String {
    format!("{value}")
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_samples_and_histograms_are_written_as_the_format_asks() {
        const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_secs(1)];
        let mut page = Page::new(1);
        page.family("a_total", Kind::Counter, "What a is.");
        page.sample(&[], 7u64);
        page.detail(&[("topic", "with \"quotes\", \\ and\nlines")], 8u64);
        page.detail(&[("topic", "no room")], 9u64);
        page.family("b_seconds", Kind::Histogram, "How long b takes.");
        page.histogram(
            &[("api", "Fetch")],
            &Measured { bounds: BOUNDS, counts: vec![1, 0, 2], total: Duration::from_millis(2500) },
        );
        assert_eq!(page.left_out(), 1);
        let expected = "# HELP a_total What a is.\n# TYPE a_total counter\na_total 7\n\
             a_total{topic=\"with \\\"quotes\\\", \\\\ and\\nlines\"} 8\n\
             # HELP b_seconds How long b takes.\n# TYPE b_seconds histogram\n\
             b_seconds_bucket{api=\"Fetch\",le=\"0.001\"} 1\nb_seconds_bucket{api=\"Fetch\",le=\"1\"} 1\n\
             b_seconds_bucket{api=\"Fetch\",le=\"+Inf\"} 3\nb_seconds_sum{api=\"Fetch\"} 2.5\n\
             b_seconds_count{api=\"Fetch\"} 3\n";
        assert_eq!(page.finish(), expected);
    }
}
