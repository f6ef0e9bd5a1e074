//! The 16,384 slots of a cluster: the slot of a key, and the node that holds each slot.

use larder_kernel::Error;
use redis::Value;

use super::OPERATION;
use crate::redis::config::Address;
use crate::redis::decode;
use crate::redis::failure::corrupt;

/// Returns the slot of a key: the slot of its hash tag.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tagged = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inner = key.get(open + 1..)?;
        let close = inner.iter().position(|byte| *byte == b'}')?;
        inner.get(..close).filter(|tag| !tag.is_empty())
    });
    crc16(tagged.unwrap_or(key)) % 16_384
}

/// Computes CRC-16/XMODEM, the hash of the cluster specification.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The holder of each slot.
#[derive(Default)]
pub(crate) struct SlotMap {
    pub(super) ranges: Vec<(u16, u16, Address)>,
    /// True if a replica may replace a node, without the writes that it had not received.
    pub(super) replicated: bool,
    pub(super) number: u64,
}

impl SlotMap {
    pub(super) fn holder(&self, slot: u16) -> Option<&Address> {
        self.ranges
            .iter()
            .find(|(first, last, _)| (*first..=*last).contains(&slot))
            .map(|(.., holder)| holder)
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns true if a replica may replace a node.
    pub(crate) fn replicated(&self) -> bool {
        self.replicated
    }

    /// Returns the nodes that hold slots, each once, and the number of held slots.
    pub(crate) fn holders(&self) -> (Vec<Address>, u32) {
        let mut holders: Vec<Address> = self.ranges.iter().map(|(.., holder)| holder.clone()).collect();
        holders.sort();
        holders.dedup();
        let slots = self.ranges.iter().map(|(first, last, _)| u32::from(*last) + 1 - u32::from(*first));
        (holders, slots.sum())
    }
}

/// Parses the reply to `CLUSTER SLOTS`: ranges, each with its holder and then its replicas. A server that
/// reports no name for a node means the server that was asked.
pub(crate) fn parse_slots(answer: Value, asked: &Address) -> Result<SlotMap, Error> {
    let mut slots = SlotMap::default();
    for range in decode::array(answer)? {
        let mut range = decode::array(range)?.into_iter();
        let mut next = || range.next().ok_or_else(|| corrupt(OPERATION));
        let (first, last, holder) = (next()?, next()?, next()?);
        let number = |value| u16::try_from(decode::integer(value)?).map_err(|_| corrupt(OPERATION));
        let mut holder = decode::array(holder)?.into_iter();
        let host =
            match decode::optional(holder.next().unwrap_or(Value::Nil)).map(decode::text).transpose()? {
                Some(host) if !host.is_empty() && host != "?" => host,
                _ => asked.0.clone(),
            };
        let port = number(holder.next().unwrap_or(Value::Nil))?;
        slots.replicated |= range.next().is_some();
        slots.ranges.push((number(first)?, number(last)?, (host, port)));
    }
    Ok(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.as_bytes().to_vec()));
        Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())])
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"a{foo}b"), slot(b"foo"));
        assert_ne!(slot(b"a{}foo"), slot(b"foo"));
    }

    #[test]
    fn slots_are_read_with_their_holders_and_replicas() {
        let asked = ("seed".to_owned(), 1);
        let answer = Value::Array(vec![
            Value::Array(vec![Value::Int(0), Value::Int(9), node(Some("a"), 7)]),
            Value::Array(vec![Value::Int(10), Value::Int(16_383), node(None, 8), node(Some("b"), 9)]),
        ]);
        let slots = parse_slots(answer, &asked).unwrap();
        assert_eq!(slots.holder(9), Some(&("a".to_owned(), 7)));
        assert_eq!(slots.holder(10), Some(&("seed".to_owned(), 8)));
        assert!(slots.replicated);
        assert!(parse_slots(Value::Int(1), &asked).is_err());
    }
}
