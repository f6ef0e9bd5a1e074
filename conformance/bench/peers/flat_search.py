"""The ten most similar vectors to each query by faiss' exact index.

    flat_search.py VECTORS.f32 QUERIES.f32 DIMENSIONS CALLS

Reads rows of 32-bit floats, searches with one thread, and prints the version, the microseconds of a call, and for each
query of the last call the numbers of the rows found.
"""

import sys
import time

import faiss
import numpy


def main(vectors, queries, dimensions, calls):
    rows = numpy.fromfile(vectors, dtype=numpy.float32).reshape(-1, dimensions)
    wanted = numpy.fromfile(queries, dtype=numpy.float32).reshape(-1, dimensions)
    # The cosine is the inner product of vectors of length one.
    faiss.normalize_L2(rows)
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(dimensions)
    index.add(rows)
    index.search(wanted[:1], 10)
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        _, found = index.search(wanted, 10)
        taken.append(time.perf_counter() - begun)
    print(faiss.__version__, 1e6 * min(taken))
    for row in found:
        print(*row)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
