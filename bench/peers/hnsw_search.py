"""The most similar vectors to each query by a library's graph index (HNSW), searched just widely enough for a given recall.

    hnsw_search.py faiss|usearch VECTORS.f32 QUERIES.f32 DIMENSIONS RECALL

Reads rows of 32-bit floats, takes the least width of the search (`efSearch`, `expansion_search`) with which as many of the
ten best rows are found as RECALL says, and prints the library's version, the width and the recall. For each line that it is
told it searches for all queries, with one thread, one query a call, and prints the middle of the microseconds that a call
takes.
"""

import statistics
import sys
import time

import numpy

LIMIT = 10
WIDTHS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


class Faiss:
    def __init__(self, rows):
        import faiss

        self.version = faiss.__version__
        # The cosine is the inner product of vectors of length one.
        self.index = faiss.IndexHNSWFlat(rows.shape[1], 32, faiss.METRIC_INNER_PRODUCT)
        self.index.add(rows)
        faiss.omp_set_num_threads(1)

    def widen(self, width):
        self.index.hnsw.efSearch = width

    def search(self, query):
        return self.index.search(query[None], LIMIT)[1][0]


class USearch:
    def __init__(self, rows):
        from importlib.metadata import version

        from usearch.index import Index

        self.version = version("usearch")
        self.index = Index(ndim=rows.shape[1], metric="ip", dtype="f32", connectivity=32)
        self.index.add(numpy.arange(len(rows)), rows)

    def widen(self, width):
        self.index.expansion_search = width

    def search(self, query):
        return self.index.search(query, LIMIT, threads=1).keys


def unit(path, dimensions):
    rows = numpy.fromfile(path, dtype=numpy.float32).reshape(-1, dimensions)
    return rows / numpy.linalg.norm(rows, axis=1, keepdims=True)


def recall(exact, index, wanted):
    found = sum(len(best & set(index.search(query).tolist())) for best, query in zip(exact, wanted))
    return found / (LIMIT * len(exact))


def least_width(index, wanted, exact, least):
    for width in WIDTHS:
        index.widen(width)
        reached = recall(exact, index, wanted)
        if reached >= least:
            return width, reached
    sys.exit("no width reaches this recall")


def middle(index, wanted):
    taken = []
    for query in wanted:
        begun = time.perf_counter()
        index.search(query)
        taken.append(time.perf_counter() - begun)
    return 1e6 * statistics.median(taken)


def main(library, vectors, queries, dimensions, least):
    rows, wanted = unit(vectors, dimensions), unit(queries, dimensions)
    best = numpy.argpartition(-(wanted @ rows.T), LIMIT, axis=1)[:, :LIMIT]
    index = {"faiss": Faiss, "usearch": USearch}[library](rows)
    width, reached = least_width(index, wanted, [set(row.tolist()) for row in best], least)
    print(index.version, width, reached, flush=True)
    for _ in sys.stdin:
        print(middle(index, wanted), flush=True)


main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))
