from knowledgepulse_worker.embedding import load_embedder as load_embedder
from knowledgepulse_worker.policy import Policy as Policy
from knowledgepulse_worker.scoring import Score as Score
from knowledgepulse_worker.scoring import Scorer as Scorer
from knowledgepulse_worker.scoring import VectorCache as VectorCache
from knowledgepulse_worker.settings import load_settings as load_settings
from knowledgepulse_worker.tools.publish.recording import record as record
from knowledgepulse_worker.tools.publish.trace_publisher import TracePublisher as TracePublisher
from knowledgepulse_worker.tools.score.offline import make_scorer as make_scorer
from knowledgepulse_worker.tools.score.scores import score_traces as score_traces

__version__: str
