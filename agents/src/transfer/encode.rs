//! Text encoding of bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use larder_kernel::Embedding;
use serde::{Deserialize, Deserializer, Serializer, de};

fn decoded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    STANDARD.decode(text.as_bytes()).map_err(|_| de::Error::custom("not base64"))
}

pub(crate) mod base64_bytes {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(bytes: &bytes::Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bytes::Bytes, D::Error> {
        decoded(deserializer).map(Into::into)
    }
}

pub(crate) mod base64_floats {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(embedding: &Embedding, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes: Vec<u8> = embedding.as_slice().iter().flat_map(|float| float.to_le_bytes()).collect();
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Embedding, D::Error> {
        let bytes = decoded(deserializer)?;
        let (floats, rest) = bytes.as_chunks::<4>();
        if !rest.is_empty() {
            return Err(de::Error::custom("not 32-bit floats"));
        }
        let floats: Vec<f32> = floats.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        Embedding::new(floats).map_err(|_| de::Error::custom("no embedding"))
    }
}
