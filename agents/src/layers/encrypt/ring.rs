//! Keys and encryption.

use std::fmt;
use std::sync::Arc;

use chacha20poly1305::aead::AeadInOut;
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use larder_kernel::check::size;
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The format version, which is the first byte of every ciphertext.
const VERSION: u8 = 1;
const ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
const TAG_BYTES: usize = 16;
/// The size of the prefix before the nonce: the version and the key's id.
pub(super) const PREFIX_BYTES: usize = 1 + ID_BYTES;
/// The size that encryption adds: version, key id, nonce, tag, and the byte that marks compression.
pub(super) const SEAL_BYTES: usize = PREFIX_BYTES + NONCE_BYTES + TAG_BYTES + 1;
/// The size limit of a decrypted value, so that decompression is bounded.
const OPENED_BYTES_MAX: usize = 256 * 1024 * 1024;

const PLAIN: u8 = 0;
const DEFLATED: u8 = 1;
const LEVEL: u8 = 6;

/// A 32-byte key from a key management service or a random generator. Never use a password as a key.
///
/// The key is wiped from memory on drop, and `Debug` does not show it.
pub struct EncryptionKey(Zeroizing<[u8; 32]>);

impl EncryptionKey {
    /// Creates a key from these bytes.
    #[must_use]
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Creates a random key, for tests or for storage in a key management service.
    ///
    /// # Errors
    /// `Unavailable` if the system provides no random bytes.
    pub fn generate() -> Result<Self> {
        let mut bytes = Zeroizing::new([0; 32]);
        let (left, right) = bytes.split_at_mut(NONCE_BYTES);
        left.copy_from_slice(&random("encryption_key.generate")?);
        let more = random("encryption_key.generate")?;
        right.copy_from_slice(more.get(..right.len()).unwrap_or(&more));
        Ok(Self(bytes))
    }

    /// Returns the key's bytes, for storage in a key management service.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey")
    }
}

/// The keys that decrypt stored data, and the one that encrypts new data.
///
/// To rotate keys, make a ring with the new key and add the old ones with [`with_older`](Self::with_older).
/// New data is encrypted with the new key, and existing data can still be decrypted. You can remove an old
/// key when no data that it encrypted remains.
#[derive(Clone)]
pub struct KeyRing {
    keys: Arc<Vec<RingKey>>,
}

struct RingKey {
    id: [u8; ID_BYTES],
    cipher: XChaCha20Poly1305,
    /// The key that derives deterministic nonces from the plaintext.
    nonces: Zeroizing<[u8; 32]>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("keys", &self.keys.len()).finish_non_exhaustive()
    }
}

impl RingKey {
    fn new(key: &EncryptionKey) -> Self {
        let derived = |label: &str| Zeroizing::new(keyed(key.as_bytes(), &[label.as_bytes()]));
        let id = derived("larder key id");
        let mut own = [0; ID_BYTES];
        own.iter_mut().zip(id.iter()).for_each(|(to, from)| *to = *from);
        let cipher = XChaCha20Poly1305::new(&(*derived("larder encryption")).into());
        Self { id: own, cipher, nonces: derived("larder nonces") }
    }
}

/// Returns the HMAC-SHA-256 of the parts, each with a length prefix.
fn keyed(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC pads a key that is shorter than a block with zeros.
    let mut block = Zeroizing::new([0; 64]);
    block.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    let mut mac = Hmac::<Sha256>::new(&(*block).into());
    for part in parts {
        mac.update(&size(part.len()).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn random(operation: &'static str) -> Result<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(|_| {
        Error::new(
            ErrorKind::Unavailable,
            operation,
            "the operating system returned no random bytes; try again later",
        )
        .with_outcome(Outcome::NotApplied)
    })?;
    Ok(bytes)
}

/// The location to which a ciphertext is bound. It cannot be decrypted at another location.
#[derive(Debug, Clone, Default)]
pub(super) struct Place(Vec<u8>);

impl Place {
    pub(super) fn new(contract: &str, namespace: &str) -> Self {
        Self::default().at(contract).at(namespace)
    }

    /// Adds a name, separated from its neighbors by its length.
    pub(super) fn at(mut self, name: &str) -> Self {
        self.0.extend_from_slice(&size(name.len()).to_be_bytes());
        self.0.extend_from_slice(name.as_bytes());
        self
    }
}

/// The derivation of the nonce.
#[derive(Debug, Clone, Copy)]
pub(super) enum Nonce<'a> {
    /// A random nonce.
    Random,
    /// A nonce derived from the key, the location, the plaintext and these bytes, so that repeated encryption
    /// gives the same bytes.
    Derived(&'a [u8]),
}

/// A key and a nonce prefix for encrypting the pieces of one blob, in order.
pub(super) struct Pieces<'a> {
    key: &'a RingKey,
    prefix: [u8; PIECES_PREFIX_BYTES],
}

/// The size of a piece's nonce without its number and the marker of the last piece.
const PIECES_PREFIX_BYTES: usize = NONCE_BYTES - 5;
/// The size of an encrypted blob's header.
pub(super) const PIECES_HEADER_BYTES: usize = PREFIX_BYTES + PIECES_PREFIX_BYTES;
/// The size that encryption adds to each piece.
pub(super) const PIECE_SEAL_BYTES: usize = TAG_BYTES;

impl KeyRing {
    /// Creates a ring of one key.
    #[must_use]
    pub fn new(key: &EncryptionKey) -> Self {
        Self { keys: Arc::new(vec![RingKey::new(key)]) }
    }

    /// Adds a key that decrypts older data and encrypts nothing.
    #[must_use]
    pub fn with_older(self, key: &EncryptionKey) -> Self {
        let mut keys =
            Arc::try_unwrap(self.keys).unwrap_or_else(|shared| shared.iter().map(RingKey::copy).collect());
        keys.push(RingKey::new(key));
        Self { keys: Arc::new(keys) }
    }

    /// Returns the number of keys.
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    fn sealing(&self, number: usize, operation: &'static str) -> Result<&RingKey> {
        self.keys.get(number).ok_or_else(|| {
            Error::new(ErrorKind::Unexpected, operation, "the key ring has no key with this id; add the key")
                .with_outcome(Outcome::NotApplied)
        })
    }

    fn opening(&self, operation: &'static str, sealed: &[u8]) -> Result<&RingKey> {
        let Some((&version, rest)) = sealed.split_first() else { return Err(corrupt(operation)) };
        let Some(id) = rest.get(..ID_BYTES).filter(|_| version == VERSION) else {
            return Err(corrupt(operation));
        };
        self.keys.iter().find(|key| key.id == id).ok_or_else(|| {
            Error::new(
                ErrorKind::PermissionDenied,
                operation,
                "no key of the ring decrypts the stored data; add the key that encrypted it",
            )
        })
    }

    /// Encrypts `plain` with the key of the given index into at most `room` bytes. Compresses it if it would
    /// not fit otherwise.
    pub(super) fn seal(
        &self,
        operation: &'static str,
        number: usize,
        place: &Place,
        plain: &[u8],
        nonce: Nonce<'_>,
        room: usize,
    ) -> Result<Vec<u8>> {
        let key = self.sealing(number, operation)?;
        let mut body = if plain.len() + SEAL_BYTES <= room {
            [&[PLAIN], plain].concat()
        } else {
            [&[DEFLATED], &miniz_oxide::deflate::compress_to_vec(plain, LEVEL)[..]].concat()
        };
        let whole = body.len() + SEAL_BYTES - 1;
        if whole > room {
            let message = "is too large for the store after compression and encryption; shorten or split it";
            return Err(Error::new(ErrorKind::ResourceExhausted, operation, message)
                .with_limit(size(whole), size(room)));
        }
        let nonce: [u8; NONCE_BYTES] = match nonce {
            Nonce::Random => random(operation)?,
            Nonce::Derived(context) => {
                let derived = keyed(&key.nonces, &[&place.0, context, &body]);
                let mut nonce = [0; NONCE_BYTES];
                nonce.iter_mut().zip(derived).for_each(|(to, from)| *to = from);
                nonce
            }
        };
        key.cipher.encrypt_in_place(&nonce.into(), &place.0, &mut body).map_err(|_| too_long(operation))?;
        Ok([&[VERSION][..], &key.id, &nonce, &body].concat())
    }

    /// Decrypts data that was encrypted for this location.
    pub(super) fn open(&self, operation: &'static str, place: &Place, sealed: &[u8]) -> Result<Vec<u8>> {
        let key = self.opening(operation, sealed)?;
        let rest = sealed.get(PREFIX_BYTES..).unwrap_or_default();
        let Some((nonce, body)) = rest.split_first_chunk::<NONCE_BYTES>() else {
            return Err(corrupt(operation));
        };
        let mut body = body.to_vec();
        let opened = key.cipher.decrypt_in_place(&(*nonce).into(), &place.0, &mut body);
        opened.map_err(|_| corrupt(operation))?;
        match body.split_first() {
            Some((&PLAIN, plain)) => Ok(plain.to_vec()),
            Some((&DEFLATED, packed)) => {
                miniz_oxide::inflate::decompress_to_vec_with_limit(packed, OPENED_BYTES_MAX)
                    .map_err(|_| corrupt(operation))
            }
            _ => Err(corrupt(operation)),
        }
    }

    /// Begins to encrypt a blob: returns its header and the encryptor of its pieces.
    pub(super) fn begin(&self, operation: &'static str) -> Result<(Vec<u8>, Pieces<'_>)> {
        let key = self.sealing(0, operation)?;
        let mut prefix = [0; PIECES_PREFIX_BYTES];
        prefix.iter_mut().zip(random(operation)?).for_each(|(to, from)| *to = from);
        Ok(([&[VERSION][..], &key.id, &prefix].concat(), Pieces { key, prefix }))
    }

    /// Returns the decryptor of a blob with this header.
    pub(super) fn resume(&self, operation: &'static str, header: &[u8]) -> Result<Pieces<'_>> {
        let key = self.opening(operation, header)?;
        let prefix = header.get(PREFIX_BYTES..).and_then(|rest| rest.first_chunk());
        Ok(Pieces { key, prefix: *prefix.ok_or_else(|| corrupt(operation))? })
    }
}

impl RingKey {
    fn copy(&self) -> Self {
        Self { id: self.id, cipher: self.cipher.clone(), nonces: self.nonces.clone() }
    }
}

impl Pieces<'_> {
    /// Returns the nonce of a piece. It contains the piece's number and the marker of the last piece, so that
    /// no piece can be moved, dropped or added.
    fn nonce(&self, number: u32, last: bool) -> XNonce {
        let mut nonce = [0; NONCE_BYTES];
        let tail = number.to_be_bytes().into_iter().chain([u8::from(last)]);
        nonce.iter_mut().zip(self.prefix.into_iter().chain(tail)).for_each(|(to, from)| *to = from);
        nonce.into()
    }

    pub(super) fn seal(
        &self,
        operation: &'static str,
        place: &Place,
        number: u32,
        last: bool,
        piece: &mut Vec<u8>,
    ) -> Result<()> {
        let nonce = self.nonce(number, last);
        self.key.cipher.encrypt_in_place(&nonce, &place.0, piece).map_err(|_| too_long(operation))
    }

    pub(super) fn open(
        &self,
        operation: &'static str,
        place: &Place,
        number: u32,
        last: bool,
        piece: &mut Vec<u8>,
    ) -> Result<()> {
        let nonce = self.nonce(number, last);
        self.key.cipher.decrypt_in_place(&nonce, &place.0, piece).map_err(|_| corrupt(operation))
    }
}

pub(super) fn corrupt(operation: &'static str) -> Error {
    let message = "the stored data does not decrypt here, because it is damaged, was moved, or was never \
        encrypted; restore it from a backup";
    Error::new(ErrorKind::Corrupt, operation, message)
}

fn too_long(operation: &'static str) -> Error {
    Error::new(ErrorKind::ResourceExhausted, operation, "is longer than the cipher accepts; split it")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: &str = "test.ring";

    #[test]
    fn sealed_data_opens_only_with_its_key_at_its_location_and_unchanged() {
        let (old, new) = (EncryptionKey::new([1; 32]), EncryptionKey::new([2; 32]));
        let (before, after) = (KeyRing::new(&old), KeyRing::new(&new).with_older(&old));
        let place = Place::new("kv", "n").at("b").at("k");
        let sealed = before.seal(OPERATION, 0, &place, b"text", Nonce::Random, 1_000).unwrap();
        assert_eq!(sealed.len(), b"text".len() + SEAL_BYTES);
        assert_eq!(after.open(OPERATION, &place, &sealed).unwrap(), b"text");
        let elsewhere = Place::new("kv", "n").at("bk").at("");
        assert_eq!(after.open(OPERATION, &elsewhere, &sealed).unwrap_err().kind(), ErrorKind::Corrupt);
        let stranger = KeyRing::new(&new).open(OPERATION, &place, &sealed).unwrap_err();
        assert_eq!(stranger.kind(), ErrorKind::PermissionDenied);
        for index in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[index] ^= 1;
            assert!(after.open(OPERATION, &place, &altered).is_err(), "byte {index}");
            assert!(after.open(OPERATION, &place, &sealed[..index]).is_err(), "cut at {index}");
        }
        assert!(!format!("{old:?}{after:?}").contains('1'));
    }

    #[test]
    fn deterministic_encryption_is_opt_in_and_only_for_equal_input() {
        let ring = KeyRing::new(&EncryptionKey::generate().unwrap());
        let place = Place::new("history", "n");
        let seal = |text: &[u8], nonce| ring.seal(OPERATION, 0, &place, text, nonce, 1_000).unwrap();
        assert_ne!(seal(b"a", Nonce::Random), seal(b"a", Nonce::Random));
        assert_eq!(seal(b"a", Nonce::Derived(b"k")), seal(b"a", Nonce::Derived(b"k")));
        assert_ne!(seal(b"a", Nonce::Derived(b"k")), seal(b"a", Nonce::Derived(b"l")));
        assert_ne!(
            seal(b"a", Nonce::Derived(b"k"))[PREFIX_BYTES..33],
            seal(b"b", Nonce::Derived(b"k"))[PREFIX_BYTES..33]
        );
    }

    #[test]
    fn a_record_that_does_not_fit_is_compressed_or_refused() {
        let ring = KeyRing::new(&EncryptionKey::generate().unwrap());
        let place = Place::new("kv", "n");
        let long = vec![b'x'; 1_000];
        let sealed = ring.seal(OPERATION, 0, &place, &long, Nonce::Random, 1_000).unwrap();
        assert!(sealed.len() < 200);
        assert_eq!(ring.open(OPERATION, &place, &sealed).unwrap(), long);
        let refused = ring.seal(OPERATION, 0, &place, b"text", Nonce::Random, 20).unwrap_err();
        assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::ResourceExhausted, Outcome::NotApplied));
    }
}
