"""Artifacts of Google ADK: what ADK's own tests require of an artifact service, and what is Larder's own."""

import asyncio

import pytest
from conftest import BACKENDS, url_of
from google.adk.artifacts import InMemoryArtifactService
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

import larder
from larder.google_adk import LarderArtifactService

TEXT = types.Part(text="é 🦀")
DATA = types.Part.from_bytes(data=b"\0\xff", mime_type="image/png")
SCOPE = {"app_name": "app", "user_id": "ada"}
SESSION = {**SCOPE, "session_id": "1"}


@pytest.fixture(params=["adk", "file", *BACKENDS])
def any_service(request, tmp_path, namespace):
    """The artifact service in memory of ADK, and that of Larder on each backend."""
    if request.param == "adk":
        yield InMemoryArtifactService()
    else:
        url = f"file:{tmp_path}/blobs" if request.param == "file" else url_of(request.param, tmp_path)
        with larder.open(url, namespace=namespace) as stores:
            yield LarderArtifactService(stores)
            stores.erase()


@pytest.fixture
def service(stores):
    return LarderArtifactService(stores)


@pytest.mark.parametrize(
    "part",
    [
        TEXT,
        types.Part(text=""),
        DATA,
        types.Part(inline_data=types.Blob(data=b"x", mime_type="text/plain", display_name="é \x7f.txt")),
        types.Part(file_data=types.FileData(file_uri="gs://bucket/file", mime_type="text/csv")),
    ],
)
def test_an_artifact_is_saved_loaded_and_deleted(any_service, part):
    async def main():
        file = {**SESSION, "filename": "file"}
        assert await any_service.load_artifact(**file) is None
        assert await any_service.save_artifact(**file, artifact=part) == 0
        assert await any_service.load_artifact(**file) == part
        assert await any_service.load_artifact(**file, version=0) == part
        assert await any_service.load_artifact(**file, version=3) is None
        assert await any_service.load_artifact(**file, version=-1) is None
        await any_service.delete_artifact(**file)
        assert await any_service.load_artifact(**file) is None
        await any_service.delete_artifact(**file)
        # The first version after a deletion is 0.
        assert await any_service.save_artifact(**file, artifact=part.model_dump(by_alias=True)) == 0
        assert await any_service.load_artifact(**file) == part

    asyncio.run(main())


def test_each_save_makes_a_version_with_metadata(any_service):
    async def main():
        file = {**SESSION, "filename": "with/slash/file"}
        assert await any_service.list_versions(**file) == []
        assert await any_service.list_artifact_versions(**file) == []
        assert await any_service.get_artifact_version(**file) is None
        for number in range(12):
            metadata = {"n": number, "é": [None]} if number else None
            saved = await any_service.save_artifact(
                **file, artifact=DATA if number else TEXT, custom_metadata=metadata
            )
            assert saved == number
        assert await any_service.list_versions(**file) == list(range(12))
        versions = await any_service.list_artifact_versions(**file)
        assert [version.version for version in versions] == list(range(12))
        assert [version.mime_type for version in versions[:2]] == ["text/plain", "image/png"]
        assert [version.custom_metadata for version in versions[:2]] == [{}, {"n": 1, "é": [None]}]
        assert versions[0].create_time <= versions[1].create_time
        assert await any_service.get_artifact_version(**file) == versions[11]
        assert await any_service.get_artifact_version(**file, version=2) == versions[2]
        assert await any_service.get_artifact_version(**file, version=12) is None
        assert versions[2].canonical_uri.endswith(
            "://apps/app/users/ada/sessions/1/artifacts/with/slash/file/versions/2"
        )

    asyncio.run(main())


def test_artifacts_of_a_user_are_in_all_sessions(any_service):
    async def main():
        other = {**SCOPE, "session_id": "2"}
        names = ["user:b", "a", "user:a"]
        for name in names:
            await any_service.save_artifact(**SESSION, filename=name, artifact=TEXT)
        assert await any_service.list_artifact_keys(**SESSION) == sorted(names)
        assert await any_service.list_artifact_keys(**SCOPE) == ["user:a", "user:b"]
        assert await any_service.list_artifact_keys(**other) == ["user:a", "user:b"]
        assert await any_service.load_artifact(**other, filename="user:a") == TEXT
        assert await any_service.load_artifact(**SCOPE, filename="user:a") == TEXT
        assert await any_service.load_artifact(**other, filename="a") is None
        assert await any_service.save_artifact(**other, filename="user:a", artifact=DATA) == 1
        [_, version] = await any_service.list_artifact_versions(**SESSION, filename="user:a")
        assert version.canonical_uri.endswith("://apps/app/users/ada/artifacts/user:a/versions/1")
        await any_service.delete_artifact(**SCOPE, filename="user:a")
        assert await any_service.list_artifact_keys(**SESSION) == ["a", "user:b"]
        for scope in ({"app_name": "other", "user_id": "ada"}, {"app_name": "app", "user_id": "bob"}):
            assert await any_service.list_artifact_keys(**scope, session_id="1") == []

    asyncio.run(main())


def test_a_nested_name_is_another_artifact(any_service):
    async def main():
        names = ["doc", "doc/nested", "doc%2Fnested", "doc.txt", "Doc", "é", "a:b"]
        for number, name in enumerate(names):
            for _ in range(number + 1):
                await any_service.save_artifact(**SESSION, filename=name, artifact=types.Part(text=name))
        assert await any_service.list_artifact_keys(**SESSION) == sorted(names)
        for number, name in enumerate(names):
            assert await any_service.list_versions(**SESSION, filename=name) == list(range(number + 1))
            assert (await any_service.load_artifact(**SESSION, filename=name)).text == name
        await any_service.delete_artifact(**SESSION, filename="doc")
        assert await any_service.list_artifact_keys(**SESSION) == sorted(names[1:])

    asyncio.run(main())


def reference(uri):
    return types.Part(file_data=types.FileData(file_uri=uri, mime_type="text/plain"))


def test_references_are_followed_in_their_scope(any_service):
    users, here = "artifact://apps/app/users/ada", "artifact://apps/app/users/ada/sessions/1/artifacts"

    async def main():
        async def save(name, part):
            await any_service.save_artifact(**SESSION, filename=name, artifact=part)

        await save("folder/target", TEXT)
        await save("folder/target", DATA)
        await save("user:target", DATA)
        await save("first", reference(f"{here}/folder/target/versions/0"))
        await save("second", reference(f"{here}/first/versions/0"))
        await save("user", reference(f"{users}/artifacts/user:target/versions/0"))
        await save("gone", reference(f"{here}/folder/target/versions/9"))
        await save("circle", reference(f"{here}/circle/versions/0"))
        assert await any_service.load_artifact(**SESSION, filename="second") == TEXT
        assert await any_service.load_artifact(**SESSION, filename="user") == DATA
        assert await any_service.load_artifact(**SESSION, filename="gone") is None
        with pytest.raises(InputValidationError):
            await any_service.load_artifact(**SESSION, filename="circle")
        for uri in (
            "artifact://nonsense",
            "artifact://apps/app/users/bob/artifacts/user:target/versions/0",
            "artifact://apps/other/users/ada/artifacts/user:target/versions/0",
            "artifact://apps/app/users/ada/sessions/2/artifacts/a/versions/0",
        ):
            with pytest.raises(InputValidationError):
                await save("bad", reference(uri))
        assert await any_service.list_versions(**SESSION, filename="bad") == []

    asyncio.run(main())


def test_what_a_rewind_saves_for_a_missing_artifact_reads_as_missing(any_service):
    async def main():
        file = {**SESSION, "filename": "file"}
        await any_service.save_artifact(**file, artifact=TEXT)
        blank = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
        assert await any_service.save_artifact(**file, artifact=blank) == 1
        assert await any_service.load_artifact(**file) is None
        assert await any_service.load_artifact(**file, version=0) == TEXT

    asyncio.run(main())


@pytest.mark.parametrize(
    "given",
    [
        {"session_id": None},
        {"artifact": types.Part()},
        {"artifact": types.Part.from_function_call(name="f", args={})},
        {"app_name": ""},
        {"user_id": ".."},
        {"session_id": "../x"},
    ],
)
def test_wrong_arguments_are_refused(any_service, given):
    async def main():
        with pytest.raises(InputValidationError):
            await any_service.save_artifact(**{**SESSION, "filename": "f", "artifact": TEXT, **given})

    asyncio.run(main())


def test_concurrent_saves_make_a_version_each(stores):
    async def main():
        file = {**SESSION, "filename": "file"}
        saves = [
            LarderArtifactService(stores).save_artifact(**file, artifact=types.Part(text=f"{number}"))
            for number in range(12)
        ]
        numbers = await asyncio.gather(*saves)
        assert sorted(numbers) == list(range(12))
        service = LarderArtifactService(stores)
        for text, number in enumerate(numbers):
            assert (await service.load_artifact(**file, version=number)).text == f"{text}"

    asyncio.run(main())


def test_a_session_has_its_name_without_the_space_around_it(service):
    async def main():
        await service.save_artifact(**SCOPE, session_id=" 1\n", filename="file", artifact=TEXT)
        assert await service.list_artifact_keys(**SESSION) == ["file"]
        assert await service.load_artifact(**SCOPE, session_id="1\t", filename="file") == TEXT

    asyncio.run(main())


def test_a_blob_has_the_bytes_and_the_mime_type(stores, service):
    """Other programs can read what is stored."""
    asyncio.run(service.save_artifact(**SESSION, filename="a/b.png", artifact=DATA))
    [found] = stores.blobs.list("adk/app/ada/")
    assert found.key == "adk/app/ada/s/1/a%2Fb.png/0000000000"
    assert stores.blobs.get(found.key) == b"\0\xff"
    assert stores.blobs.info(found.key).content_type == "image/png"


def test_names_and_metadata_over_the_limits_are_refused():
    async def main():
        async with await LarderArtifactService.afrom_url("memory:") as service:
            for name, metadata, field in (
                ("f" * 500, {}, "prefix"),
                ("f", {"x": "y" * 2048}, "metadata.bytes"),
                ("f", {"x": object()}, "custom_metadata"),
                ("", {}, "key"),
            ):
                with pytest.raises(larder.InvalidInput) as caught:
                    await service.save_artifact(
                        **SESSION, filename=name, artifact=TEXT, custom_metadata=metadata
                    )
                assert caught.value.field.endswith(field)
            assert await service.list_artifact_keys(**SESSION) == []

    asyncio.run(main())
