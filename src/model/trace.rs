//! Trace contexts (W3C Trace Context, level 1): which trace a request belongs to.

use std::fmt;

/// A place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceContext {
    /// Identity of the trace; never all zero.
    pub trace_id: [u8; 16],
    /// Identity of the span that caused what follows; never all zero.
    pub span_id: [u8; 8],
    /// Bit 0: the trace is recorded.
    pub flags: u8,
}

impl TraceContext {
    /// Bytes of the packed form.
    pub const PACKED: usize = 25;

    /// Reads a `traceparent` header; `None` when it is none (then the trace is left out, never the request).
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if version.len() != 2 || version == "ff" || (version == "00" && parts.next().is_some()) {
            return None;
        }
        bytes::<1>(version)?;
        let [flags] = bytes::<1>(flags)?;
        let context = Self { trace_id: bytes(trace)?, span_id: bytes(span)?, flags };
        context.is_valid().then_some(context)
    }

    /// Reads the packed form; `None` when it is none.
    #[must_use]
    pub fn unpack(packed: &[u8]) -> Option<Self> {
        let (trace, rest) = packed.split_at_checked(16)?;
        let (span, flags) = rest.split_at_checked(8)?;
        let [flags] = flags else { return None };
        let context =
            Self { trace_id: trace.try_into().ok()?, span_id: span.try_into().ok()?, flags: *flags };
        context.is_valid().then_some(context)
    }

    /// Trace id, span id, flags.
    #[must_use]
    pub fn pack(&self) -> Vec<u8> {
        let mut packed = Vec::with_capacity(Self::PACKED);
        packed.extend(self.trace_id);
        packed.extend(self.span_id);
        packed.push(self.flags);
        packed
    }

    /// Whether the trace is recorded.
    #[must_use]
    pub fn is_sampled(&self) -> bool {
        self.flags & 1 == 1
    }

    fn is_valid(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}

impl fmt::Display for TraceContext {
    /// As a `traceparent` header.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("00-")?;
        self.trace_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("-")?;
        self.span_id.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        write!(f, "-{:02x}", self.flags)
    }
}

/// Exactly `N` bytes of lower-case hexadecimal digits.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let lower = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    if text.len() != 2 * N || !text.bytes().all(lower) {
        return None;
    }
    let mut out = [0; N];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_reads_back() {
        let context = TraceContext::parse(TEXT).unwrap();
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), TEXT);
        assert_eq!(TraceContext::unpack(&context.pack()), Some(context));
    }

    #[test]
    fn what_is_no_traceparent_is_left_out() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0af7651916cd43dd8448eb211c80319é-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceContext::parse(text), None, "{text}");
        }
        assert_eq!(TraceContext::unpack(&[1; 24]), None);
        assert_eq!(TraceContext::unpack(&[0; 25]), None);
    }
}
