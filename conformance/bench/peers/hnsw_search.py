"""The most similar vectors to each query by faiss' graph index (HNSW), searched just widely enough for a given recall.

    hnsw_search.py VECTORS.f32 QUERIES.f32 DIMENSIONS RECALL

Reads rows of 32-bit floats, takes the least `efSearch` with which as many of the ten best rows are found as RECALL says, by
faiss' exact index, and prints the version, `efSearch` and the recall. For each line that it is told it searches for all
queries, with one thread, one query a call, and prints the middle of the microseconds that a call takes.
"""

import statistics
import sys
import time

import faiss
import numpy

LIMIT = 10


def found(index, wanted):
    return [set(index.search(query[None], LIMIT)[1][0].tolist()) for query in wanted]


def recall(exact, approximate):
    return sum(len(a & b) for a, b in zip(exact, approximate)) / (LIMIT * len(exact))


def least_width(index, wanted, exact, least):
    for width in (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024):
        index.hnsw.efSearch = width
        reached = recall(exact, found(index, wanted))
        if reached >= least:
            return width, reached
    sys.exit("no width reaches this recall")


def middle(index, wanted):
    taken = []
    for query in wanted:
        begun = time.perf_counter()
        index.search(query[None], LIMIT)
        taken.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(taken)


def main(vectors, queries, dimensions, least):
    rows = numpy.fromfile(vectors, dtype=numpy.float32).reshape(-1, dimensions)
    wanted = numpy.fromfile(queries, dtype=numpy.float32).reshape(-1, dimensions)
    # The cosine is the inner product of vectors of length one.
    faiss.normalize_L2(rows)
    faiss.normalize_L2(wanted)
    index = faiss.IndexHNSWFlat(dimensions, 32, faiss.METRIC_INNER_PRODUCT)
    index.add(rows)
    exact = faiss.IndexFlatIP(dimensions)
    exact.add(rows)
    exact = found(exact, wanted)
    faiss.omp_set_num_threads(1)
    width, reached = least_width(index, wanted, exact, least)
    print(faiss.__version__, width, reached, flush=True)
    for _ in sys.stdin:
        print(middle(index, wanted), flush=True)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
