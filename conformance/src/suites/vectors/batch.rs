//! Batches of searches.

use larder_kernel::{Filter, Metadata, SearchRequest};

use super::support::{collection, embedding, put_all, random_documents, random_values, same_answer};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn a_batch_returns_the_results_of_single_searches(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    let mut documents = random_documents(&context, 50, 6)?;
    for (number, one) in documents.iter_mut().enumerate() {
        one.metadata = Metadata::new().with("fifth", number % 5);
    }
    put_all(&*a, &space, &documents).await?;
    let mut requests = Vec::new();
    for number in 0..256_u64 {
        let limit = usize::try_from(number % 7).unwrap_or_default();
        let mut request =
            SearchRequest::new(embedding(&random_values(&context, 7_000 + number, 6))?).with_limit(limit);
        if number % 3 == 0 {
            request = request.with_filter(Filter::eq("fifth", number % 6));
        }
        if number % 4 == 0 {
            request = request.with_score_min(0.5);
        }
        requests.push(request);
    }
    for count in [0, 1, 2, 256] {
        let asked = &requests[..count];
        let answers = b.search_batch(&space, asked).await?;
        expect::equal("answers", &answers.len(), &count)?;
        for (number, (request, answer)) in asked.iter().zip(&answers).enumerate() {
            let single = a.search(&space, request).await?;
            expect::equal(&format!("result {number} of {count}"), answer, &single)?;
            if request.score_min.is_none() {
                same_answer(&format!("result {number} of {count}"), answer, &documents, request)?;
            }
        }
    }
    let nowhere = b.search_batch(&collection("not there")?, &requests[..3]).await?;
    expect::equal("hits in a missing collection", &nowhere, &vec![Vec::new(); 3])
}

pub(super) async fn one_invalid_request_fails_the_batch(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let space = collection("space")?;
    put_all(&*a, &space, &random_documents(&context, 10, 3)?).await?;
    let good = SearchRequest::new(embedding(&[1.0, 0.0, 0.0])?);
    let bad = [
        (good.clone().with_limit(10_001), "limit"),
        (good.clone().with_score_min(f32::NAN), "score_min"),
        (good.clone().with_filter(Filter::eq("a", "\0")), "filter.value"),
        (SearchRequest::new(embedding(&[1.0, 0.0])?), "embedding"),
    ];
    for (bad, field) in bad {
        for place in 0..3 {
            let mut requests = vec![good.clone(); 2];
            requests.insert(place, bad.clone());
            let what = format!("an invalid {field} in request {place}");
            expect::invalid(&what, b.search_batch(&space, &requests).await, field)?;
        }
    }
    expect::equal("results without it", &b.search_batch(&space, &[good.clone(), good]).await?.len(), &2)
}
