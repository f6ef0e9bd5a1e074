"""The ten most similar vectors to each query by faiss' exact index, and by numpy.

    flat_search.py VECTORS.f32 QUERIES.f32 DIMENSIONS CALLS

Reads rows of 32-bit floats, searches with one thread, and prints the version of each and the microseconds of a call, and
for each query of faiss' last call the numbers of the rows found.
"""

import sys
import time

import faiss
import numpy


def by_numpy(rows, wanted):
    scores = wanted @ rows.T
    best = numpy.argpartition(-scores, 10, axis=1)[:, :10]
    order = numpy.argsort(-numpy.take_along_axis(scores, best, axis=1), axis=1)
    return numpy.take_along_axis(best, order, axis=1)


def quickest(search, calls):
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        found = search()
        taken.append(time.perf_counter() - begun)
    return 1e6 * min(taken), found


def main(vectors, queries, dimensions, calls):
    rows = numpy.fromfile(vectors, dtype=numpy.float32).reshape(-1, dimensions)
    wanted = numpy.fromfile(queries, dtype=numpy.float32).reshape(-1, dimensions)
    # The cosine is the inner product of vectors of length one.
    faiss.normalize_L2(rows)
    faiss.omp_set_num_threads(1)
    index = faiss.IndexFlatIP(dimensions)
    index.add(rows)
    index.search(wanted[:1], 10)
    micros, found = quickest(lambda: index.search(wanted, 10)[1], calls)
    wanted /= numpy.linalg.norm(wanted, axis=1, keepdims=True)
    print(faiss.__version__, micros, numpy.__version__, quickest(lambda: by_numpy(rows, wanted), calls)[0])
    for row in found:
        print(*row)


main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
