"""The published data sets: files, digests, addresses and licences. Credits are in CREDITS.md.

md5 digests are the publishers'; sha256 digests are of the content of files that had the published digest.
"""

from __future__ import annotations

from async_hfl.core.errors import DataError
from async_hfl.learning.datasets import hpwren_files
from async_hfl.learning.datasets.files.published import Download, PublishedSet, SourceFile
from async_hfl.learning.datasets.files.unpacking import extractor


def _idx_downloads(folders: tuple[str, ...], md5s: dict[str, str]) -> tuple[Download, ...]:
    return tuple(
        Download(name=name, addresses=tuple(folder + name for folder in folders), md5=md5) for name, md5 in md5s.items()
    )


MNIST = PublishedSet(
    name="mnist",
    folder="mnist",
    title="MNIST: handwritten digits, 28 x 28",
    licence="CC BY-SA 3.0",
    samples={"train": 60_000, "test": 10_000},
    download_bytes=11_594_722,
    files=(
        SourceFile("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        SourceFile("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        SourceFile("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        SourceFile("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    downloads=_idx_downloads(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
)

FASHION_MNIST = PublishedSet(
    name="fashion-mnist",
    folder="fashion-mnist",
    title="Fashion-MNIST: pieces of clothing, 28 x 28",
    licence="MIT",
    samples={"train": 60_000, "test": 10_000},
    download_bytes=30_878_645,
    files=(
        SourceFile("train-images-idx3-ubyte", "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888"),
        SourceFile("train-labels-idx1-ubyte", "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9"),
        SourceFile("t10k-images-idx3-ubyte", "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b"),
        SourceFile("t10k-labels-idx1-ubyte", "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34"),
    ),
    downloads=_idx_downloads(
        ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
)

_CIFAR_BATCHES = (
    SourceFile("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
    SourceFile("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
    SourceFile("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
    SourceFile("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
    SourceFile("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
    SourceFile("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
)

CIFAR10 = PublishedSet(
    name="cifar10",
    folder="cifar-10",
    title="CIFAR-10: colour photographs, 32 x 32",
    licence="none stated; free for research, cite Krizhevsky 2009",
    samples={"train": 50_000, "test": 10_000},
    download_bytes=170_052_171,
    files=_CIFAR_BATCHES,
    downloads=(
        Download(
            name="cifar-10-binary.tar.gz",
            addresses=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            md5="c32a1d4ab5d03f1284b67883e8d87530",
            unpack=extractor({file.name: file.name for file in _CIFAR_BATCHES}),
        ),
    ),
)

_HAR_FILES = (
    SourceFile("X_train.txt", "32c777e74ef81f9e8e3082230d14bdaad948626b8b3c0fbfc8d1bdcde995094b", text=True),
    SourceFile("X_test.txt", "12abbfa7391bfb94a8962510b8f5b494ba0d8af3cce16382d890f0341241d884", text=True),
    SourceFile("y_train.txt", "415b3357e2e2d5e70a45c781947c6bdd80e0410a579d862eedcd6bbce3c694ef", text=True),
    SourceFile("y_test.txt", "2a94cb53ca46b956c1b2aebd4a09a72badd8a8e9ea9cdfe9f31b3306a08666bb", text=True),
    SourceFile("subject_train.txt", "66e1e2fbe9b396fa5155f531dc3348c803f503be663e2318772d49947db9153a", text=True),
    SourceFile("subject_test.txt", "63b8c577f4a85431c06bd87f6384608c90a9f72f05c7956dd21255dc63515c07", text=True),
)

HAR = PublishedSet(
    name="har",
    folder="uci-har",
    title="UCI HAR: smartphone motion of 30 people, 561 features",
    licence="CC BY 4.0 (the set's own README: no commercial use)",
    samples={"train": 9_270, "test": 1_029},
    download_bytes=60_999_314,
    files=_HAR_FILES,
    downloads=(
        Download(
            name="har.zip",
            addresses=(
                "https://archive.ics.uci.edu/static/public/240/human+activity+recognition+using+smartphones.zip",
                "https://archive.ics.uci.edu/ml/machine-learning-databases/00240/UCI%20HAR%20Dataset.zip",
            ),
            unpack=extractor({file.name: file.name for file in _HAR_FILES}),
        ),
    ),
)

SHAKESPEARE = PublishedSet(
    name="shakespeare",
    folder="shakespeare",
    title="Shakespeare: the next character, by speaking role",
    licence="World Library via Project Gutenberg: personal use, not commercial",
    samples={"train": 419_853, "test": 95_609},
    download_bytes=2_008_978,
    files=(
        SourceFile(
            "shakespeare-pg100-1994.txt", "c5601d266987ac885ca96522b1b4e439feb7eca39f0fe1111f7342b63b6468f3", text=True
        ),
    ),
    downloads=(
        Download(
            name="1994-01-100.zip",
            addresses=("https://www.gutenberg.org/files/100/old/1994-01-100.zip",),
            unpack=extractor({"100.txt": "shakespeare-pg100-1994.txt"}),
        ),
    ),
)

HPWREN = PublishedSet(
    name="hpwren",
    folder="hpwren",
    title="HPWREN: weather of 2021 at 26 stations, half-hourly and hourly",
    licence="MIT (UCSD SEELab); credit HPWREN, hpwren.ucsd.edu",
    samples={"train": 292_838, "test": 31_366},
    download_bytes=150_000_000,  # estimated: the server creates the archive while sending it
    files=(
        SourceFile(
            hpwren_files.HALF_HOURLY_FILE,
            "9a1e32f8863b62b49605e4a8e593455924b006cda339938237c41ca2568af652",
            check=hpwren_files.check_half_hourly,
        ),
        SourceFile(
            hpwren_files.HOURLY_FILE,
            "79b8ec7c5112f52dd69d0eb7af423cd1b22490daba5a8bf83ea4124a2dc4eb58",
            check=hpwren_files.check_hourly,
        ),
    ),
    downloads=(
        Download(
            name="iot-dataset.zip",
            addresses=(
                "https://codeload.github.com/UCSD-SEELab/iot-dataset/zip/edf868a1f7f4b14bf96157cfb5c9706e211514f5",
                "https://github.com/UCSD-SEELab/iot-dataset/archive/edf868a1f7f4b14bf96157cfb5c9706e211514f5.zip",
            ),
            unpack=hpwren_files.unpack_repository,
        ),
    ),
)

PUBLISHED = {entry.name: entry for entry in (MNIST, FASHION_MNIST, CIFAR10, HAR, SHAKESPEARE, HPWREN)}


def published_set(name: str) -> PublishedSet:
    try:
        return PUBLISHED[name]
    except KeyError:
        if name == "digits":
            raise DataError("digits is inside async-hfl; there is nothing to fetch or to verify") from None
        raise DataError(f"unknown data set {name!r}; there are: {', '.join(PUBLISHED)}") from None
