//! Statements that bind embeddings in pgvector's types.
//!
//! sqlx queries the server for each type that it has not seen, once on every connection. A statement with a
//! cached description saves the connection that round trip, so each statement is described once for all
//! connections.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use larder_kernel::Embedding;
use pgvector::{HalfVector, Vector};
use sqlx::encode::{Encode, IsNull};
use sqlx::error::{BoxDynError, DatabaseError};
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgStatement, PgTypeInfo, PgTypeKind};
use sqlx::{Either, Executor, PgConnection, Postgres, SqlSafeStr, Statement, Type};

use super::embedding::direction;
use crate::postgres::failure::{Failure, Fallible};

/// The described statements of one open database.
#[derive(Debug, Default)]
pub(crate) struct Statements(Mutex<HashMap<String, PgStatement>>);

impl Statements {
    /// Returns a statement with its description. The first use asks the server for it.
    pub(super) async fn describe(
        &self,
        connection: &mut PgConnection,
        sql: impl SqlSafeStr,
    ) -> Fallible<PgStatement> {
        let sql = sql.into_sql_str();
        if let Some(known) = self.lock().get(sql.as_str()) {
            return Ok(known.clone());
        }
        let described = connection.prepare(sql.clone()).await?;
        self.lock().insert(sql.as_str().to_owned(), described.clone());
        Ok(described)
    }

    /// Passes on the result of a described statement. If its types may have been dropped, because pgvector
    /// was removed and added again, it forgets all descriptions. The failure then makes the call run again on
    /// a new connection.
    pub(super) fn checked<T>(&self, result: Result<T, sqlx::Error>) -> Fallible<T> {
        result.map_err(|error| {
            let code = error.as_database_error().and_then(DatabaseError::code);
            match code.as_deref() {
                Some("42501") | None => Failure::Database(error),
                Some(code) if code == "XX000" || code.starts_with("42") => {
                    self.lock().clear();
                    Failure::Stale(error)
                }
                Some(_) => Failure::Database(error),
            }
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, PgStatement>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A value with the type of the database for it.
pub(super) struct Typed<V> {
    value: V,
    type_info: PgTypeInfo,
}

impl<V: Type<Postgres>> Type<Postgres> for Typed<V> {
    fn type_info() -> PgTypeInfo {
        V::type_info()
    }
}

impl<V: PgHasArrayType> PgHasArrayType for Typed<V> {
    fn array_type_info() -> PgTypeInfo {
        V::array_type_info()
    }
}

impl<'q, V: Encode<'q, Postgres>> Encode<'q, Postgres> for Typed<V> {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        self.value.encode_by_ref(buffer)
    }

    fn produces(&self) -> Option<PgTypeInfo> {
        Some(self.type_info.clone())
    }
}

/// Returns the type of a parameter, counted from 1. Without a description it is pgvector's name of the type.
fn parameter<V: Type<Postgres>>(statement: &PgStatement, number: usize) -> PgTypeInfo {
    match statement.parameters() {
        Some(Either::Left(types)) => types.get(number - 1).cloned(),
        _ => None,
    }
    .unwrap_or_else(V::type_info)
}

/// Returns the direction of an embedding for a parameter of type `vector`.
pub(super) fn vector(statement: &PgStatement, number: usize, embedding: &Embedding) -> Typed<Vector> {
    let type_info = parameter::<Vector>(statement, number);
    Typed { value: Vector::from(direction(embedding).collect::<Vec<f32>>()), type_info }
}

/// Returns the direction of an embedding for a parameter of type `halfvec`.
pub(super) fn half_vector(
    statement: &PgStatement,
    number: usize,
    embedding: &Embedding,
) -> Typed<HalfVector> {
    let type_info = parameter::<HalfVector>(statement, number);
    let values: Vec<f32> = direction(embedding).collect();
    Typed { value: HalfVector::from_f32_slice(&values), type_info }
}

/// Returns the directions of embeddings for a parameter of type `vector[]`.
pub(super) fn vectors<'e>(
    statement: &PgStatement,
    number: usize,
    embeddings: impl Iterator<Item = &'e Embedding>,
) -> Typed<Vec<Typed<Vector>>> {
    let type_info = parameter::<Vec<Vector>>(statement, number);
    let of_one = match type_info.kind() {
        PgTypeKind::Array(of_one) => of_one.clone(),
        _ => Vector::type_info(),
    };
    let typed = |embedding| Typed {
        value: Vector::from(direction(embedding).collect::<Vec<f32>>()),
        type_info: of_one.clone(),
    };
    Typed { value: embeddings.map(typed).collect(), type_info }
}
