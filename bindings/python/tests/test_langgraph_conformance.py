"""LangGraph's own conformance suite, unmodified, with every capability."""

import asyncio
import uuid

from langgraph.checkpoint.conformance import checkpointer_test, validate

from larder.langgraph import LarderSaver

TESTS = 81


def test_the_saver_conforms(url, request):
    @checkpointer_test(name=f"LarderSaver on {request.node.callspec.params['url']}")
    async def saver():
        async with await LarderSaver.afrom_url(url, namespace=f"python-{uuid.uuid4()}") as saver:
            yield saver
            await saver._owned.aerase()

    report = asyncio.run(validate(saver))
    results = report.results.values()
    failures = [failure for result in results for failure in result.failures]
    passed = sum(result.tests_passed for result in results)
    print(f"\n{report.checkpointer_name}: {passed} of {TESTS} tests, {report.conformance_level()}")
    assert not failures, "\n".join(failures)
    assert all(result.detected and result.passed for result in results)
    assert (passed, len(report.results)) == (TESTS, 8)
    assert report.passed_all() and report.conformance_level() == "FULL"


def test_the_number_of_tests_is_that_of_the_suite():
    """A new release of the suite with more tests fails here, so that the bar follows."""
    from langgraph.checkpoint.conformance.spec import (
        test_copy_thread,
        test_delete_for_runs,
        test_delete_thread,
        test_get_tuple,
        test_list,
        test_prune,
        test_put,
        test_put_writes,
    )

    lists = [
        value
        for module in (
            test_copy_thread,
            test_delete_for_runs,
            test_delete_thread,
            test_get_tuple,
            test_list,
            test_prune,
            test_put,
            test_put_writes,
        )
        for name, value in vars(module).items()
        if name.startswith("ALL_")
    ]
    assert sum(map(len, lists)) == TESTS
