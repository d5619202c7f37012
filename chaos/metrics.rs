//! Metrics of a manager, as a scraper sees them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Deadline of one question.
const ASK: Duration = Duration::from_secs(5);

/// The value of a metric without labels at a manager's admin address; `None` when it was never set.
///
/// # Errors
/// When the manager does not answer.
pub async fn value(admin: &str, name: &str) -> Result<Option<f64>> {
    let asked = tokio::time::timeout(ASK, scrape(admin)).await;
    let text = asked.context("no answer in time").flatten();
    Ok(find(&text.with_context(|| format!("cannot ask {admin} for its metrics"))?, name))
}

async fn scrape(admin: &str) -> Result<String> {
    let mut stream = TcpStream::connect(admin).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn find(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_found_by_its_whole_name() {
        let text = "# TYPE a gauge\na_b 7\na{x=\"1\"} 6\na 5\r\n";
        assert_eq!((find(text, "a"), find(text, "a_b"), find(text, "b")), (Some(5.0), Some(7.0), None));
    }
}
